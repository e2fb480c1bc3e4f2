/* mul, add, _softmax
 * rows [64], of [128]
 */
static void kernel_0(const float* restrict arg0_1, const float* restrict arg1_1, float* restrict _softmax)
{
    #pragma omp parallel for schedule(static)
    for (int64_t i0 = 0; i0 < 64; ++i0) {
        float _softmax_exp[128] ALIGNED;
        float add[128] ALIGNED;
        float r5 = -INFINITY;
        int r5_nan = 0;
        #pragma omp simd reduction(max:r5) reduction(|:r5_nan)
        for (int64_t i1 = 0; i1 < 128; ++i1) {
            const float t1 = arg0_1[128*i0 + i1];
            const float t2 = t1 * 0.5f;
            const float t3 = arg1_1[i1];
            const float t4 = t2 + t3;
            add[i1] = t4;
            r5 = t4 > r5 ? t4 : r5;
            r5_nan |= t4 != t4;
        }
        if (r5_nan) r5 = NAN;
        float r9 = 0;
        f32x16 r9_v[1] = {};
        for (int64_t j = 0; j < 128; j += 16) {
            float r9_l[16] ALIGNED;
            #pragma omp simd
            for (int64_t l = 0; l < 16; ++l) {
                const int64_t i1 = j + l;
                const float t6 = add[i1];
                const float t7 = t6 - r5;
                const float t8 = tg_exp_f32(t7);
                _softmax_exp[i1] = t8;
                r9_l[l] = t8;
            }
            r9_v[0] += *(f32x16*)&r9_l[0];
        }
        r9 += tg_sum_f32x16(r9_v[0]);
        const float t10 = 1.0f / r9;
        #pragma omp simd
        for (int64_t i1 = 0; i1 < 128; ++i1) {
            const float t11 = _softmax_exp[i1];
            const float t12 = t11 * t10;
            _softmax[128*i0 + i1] = t12;
        }
    }
}
void kernel_0_call(void** a) { kernel_0(a[0], a[1], a[2]); }
