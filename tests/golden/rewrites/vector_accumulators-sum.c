/* before */
#pragma omp simd
for (int64_t i1 = 0; i1 < 100; ++i1) {
    const float t1 = x[256*i0 + i1];
    r2 = r2 + t1;
}

/* after */
f32x8 r2_v[2] = {};
for (int64_t j = 0; j < 96; j += 16) {
    float r2_l[16] ALIGNED;
    #pragma omp simd
    for (int64_t l = 0; l < 8; ++l) {
        {
            const int64_t i1 = j + l;
            const float t1 = x[256*i0 + i1];
            r2_l[l] = t1;
        }
        {
            const int64_t i1 = j + l + 8;
            const float t1 = x[256*i0 + i1];
            r2_l[l + 8] = t1;
        }
    }
    r2_v[0] += *(f32x8*)&r2_l[0];
    r2_v[1] += *(f32x8*)&r2_l[8];
}
{
    float r2_l[16] ALIGNED = {};
    #pragma omp simd
    for (int64_t l = 0; l < 4; ++l) {
        const int64_t i1 = 96 + l;
        const float t1 = x[256*i0 + i1];
        r2_l[l] = t1;
    }
    r2_v[0] += *(f32x8*)&r2_l[0];
    r2_v[1] += *(f32x8*)&r2_l[8];
}
r2 += tg_sum_f32x8(r2_v[0] + r2_v[1]);
