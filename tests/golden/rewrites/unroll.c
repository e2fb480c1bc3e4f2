/* before */
#pragma omp simd
for (int64_t i1 = 0; i1 < 3; ++i1) {
    const float t1 = x[i0];
    const float t2 = x[256*i0 + i1];
    const float t3 = t1 * t2;
    y[256*i0 + i1] = t3;
}

/* after */
const float t1 = x[i0];
{
    const int64_t i1 = 0;
    const float t2 = x[256*i0 + i1];
    const float t3 = t1 * t2;
    y[256*i0 + i1] = t3;
}
{
    const int64_t i1 = 1;
    const float t2 = x[256*i0 + i1];
    const float t3 = t1 * t2;
    y[256*i0 + i1] = t3;
}
{
    const int64_t i1 = 2;
    const float t2 = x[256*i0 + i1];
    const float t3 = t1 * t2;
    y[256*i0 + i1] = t3;
}
