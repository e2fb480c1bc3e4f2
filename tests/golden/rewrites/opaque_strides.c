/* before */
#pragma omp simd
for (int64_t i1 = 0; i1 < 256; ++i1) {
    const float t1 = x[i0 + 4096*i1 + 1];
    const float t2 = x[i0 + 4096*i1 + 2];
}

/* after */
int64_t step4096 = 4096;
OPAQUE(step4096);
#pragma omp simd
for (int64_t i1 = 0; i1 < 256; ++i1) {
    const float t1 = x[i0 + step4096*i1 + 1];
    const float t2 = x[i0 + step4096*i1 + 2];
}
