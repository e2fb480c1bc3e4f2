/* before */
#pragma omp parallel for schedule(static)
for (int64_t i0 = 0; i0 < 64; ++i0) {
    #pragma omp simd
    for (int64_t i1 = 0; i1 < 256; ++i1) {
        const int64_t t2 = i1;
        const int64_t t3 = t2 >> INT64_C(1);
        const float t4 = (float)t2;
        const float t5 = x[128*i0 + t3];
        const float t6 = t5 * t4;
        y[256*i0 + i1] = t6;
    }
}

/* after */
int32_t column0[256] ALIGNED;
float column1[256] ALIGNED;
#pragma omp simd
for (int64_t i1 = 0; i1 < 256; ++i1) {
    const int64_t t2 = i1;
    const int64_t t3 = t2 >> INT64_C(1);
    const float t4 = (float)t2;
    column0[i1] = t3;
    column1[i1] = t4;
}
#pragma omp parallel for schedule(static)
for (int64_t i0 = 0; i0 < 64; ++i0) {
    #pragma omp simd
    for (int64_t i1 = 0; i1 < 256; ++i1) {
        const int64_t t3 = (int64_t)column0[i1];
        const float t4 = column1[i1];
        const float t5 = x[128*i0 + t3];
        const float t6 = t5 * t4;
        y[256*i0 + i1] = t6;
    }
}
