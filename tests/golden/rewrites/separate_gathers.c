/* before */
#pragma omp simd
for (int64_t i1 = 0; i1 < 256; ++i1) {
    const int64_t t1 = index[i1];
    const int64_t t2 = tg_bound(t1, INT64_C(1000), INT64_C(0), INT64_C(0));
    const float t3 = tg_from_bf16(x[8*t2 + i0]);
    const float t4 = t3 * 2.0f;
    y[256*i0 + i1] = t4;
}

/* after */
bf16 got0[256] ALIGNED;
for (int64_t i1 = 0; i1 < 256; ++i1) {
    const int64_t t1 = index[i1];
    const int64_t t2 = tg_bound(t1, INT64_C(1000), INT64_C(0), INT64_C(0));
    got0[i1] = x[8*t2 + i0];
}
#pragma omp simd
for (int64_t i1 = 0; i1 < 256; ++i1) {
    const float t3 = tg_from_bf16(got0[i1]);
    const float t4 = t3 * 2.0f;
    y[256*i0 + i1] = t4;
}
