/* before */
#pragma omp simd
for (int64_t i1 = 0; i1 < 256; ++i1) {
    const float t1 = tg_from_bf16(x[256*i0 + i1]);
    const float t2 = t1 * t7;
    const float t3 = t7 * 2.0f;
    r2 = r2 + t2;
    y[i1 + 3] = tg_to_bf16(t2);
}

/* after */
#pragma omp simd
for (int64_t i1 = 0; i1 < 256; i1 += 2) {
    const pair t1_p = PAIR(x[256*i0 + i1]);
    const float t1 = tg_first(t1_p), t1_b = tg_second(t1_p);
    const float t2 = t1 * t7, t2_b = t1_b * t7;
    const float t3 = t7 * 2.0f;
    r2 = r2 + t2;
    r2_b = r2_b + t2_b;
    PAIR(y[i1 + 3]) = tg_pair(t2, t2_b);
}
