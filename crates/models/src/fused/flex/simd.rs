//! Loops that are compiled for several instruction sets, of which the processor's best is taken when they run.

use pulp::{Arch, Simd, WithSimd};

/// Numbers that are summed side by side, so that the compiler may use vectors: a sum of floats in order is a chain.
pub(super) const LANES: usize = 16;

/// A computation to be compiled for every instruction set. `run` and all that it calls must be inlined.
pub(super) trait Kernel {
    type Output;

    /// `FMA`: whether the instruction set multiplies and adds in one step.
    fn run<const FMA: bool>(self) -> Self::Output;
}

struct Compiled<K>(K);

impl<K: Kernel> WithSimd for Compiled<K> {
    type Output = K::Output;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> K::Output {
        // Only the instruction set without vectors has single numbers.
        match size_of::<S::f32s>() > size_of::<f32>() {
            true => self.0.run::<true>(),
            false => self.0.run::<false>(),
        }
    }
}

/// Runs the kernel with the best instructions that the processor has.
pub(super) fn run<K: Kernel>(kernel: K) -> K::Output {
    Arch::new().dispatch(Compiled(kernel))
}

/// a·b + c.
#[inline(always)]
pub(super) fn mul_add<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    // Without the instruction `mul_add` would be a call of a function.
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// e^x to about 1e-7, relatively; 0 below −87, and e^88 above 88.
///
/// x = n·ln 2 + r, and e^r by the polynomial of the Cephes library (Moshier).
#[inline(always)]
pub(super) fn exp<const FMA: bool>(x: f32) -> f32 {
    /// Added and subtracted it rounds to an integer, which then stands in the last bits.
    const ROUND: f32 = 12_582_912.0; // 1.5·2^23
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let is_zero = x < -87.0;
    let x = if is_zero { -87.0 } else { x };
    let x = if x > 88.0 { 88.0 } else { x };
    let shifted = mul_add::<FMA>(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = mul_add::<FMA>(n, -LN_2_HIGH, x);
    let r = mul_add::<FMA>(n, -LN_2_LOW, r);
    let mut p = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = mul_add::<FMA>(p, r, coefficient);
    }
    let p = mul_add::<FMA>(p, r * r, r) + 1.0;
    let power = p * f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    if is_zero { 0.0 } else { power }
}

/// Σ f(x, y) over pairs, in lanes.
#[inline(always)]
pub(super) fn sum_pairs(x: &[f32], y: &[f32], term: impl Fn(f32, f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (xs, ys) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
    let (x_rest, y_rest) = (xs.remainder(), ys.remainder());
    for (x, y) in xs.zip(ys) {
        for lane in 0..LANES {
            lanes[lane] = term(x[lane], y[lane], lanes[lane]);
        }
    }
    let rest = x_rest.iter().zip(y_rest).fold(0.0, |sum, (x, y)| term(*x, *y, sum));
    folded(lanes, |a, b| a + b) + rest
}

/// Largest number of a list that is not empty.
#[inline(always)]
pub(super) fn highest(x: &[f32]) -> f32 {
    let max = |a: f32, b: f32| if a > b { a } else { b };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] = max(chunk[lane], lanes[lane]);
        }
    }
    rest.iter().fold(folded(lanes, max), |a, b| max(*b, a))
}

/// Replaces every x by e^(x − shift) and returns their sum.
#[inline(always)]
pub(super) fn exp_and_sum<const FMA: bool>(x: &mut [f32], shift: f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let mut chunks = x.chunks_exact_mut(LANES);
    for chunk in &mut chunks {
        for lane in 0..LANES {
            chunk[lane] = exp::<FMA>(chunk[lane] - shift);
            lanes[lane] += chunk[lane];
        }
    }
    let mut sum = 0.0;
    for x in chunks.into_remainder() {
        *x = exp::<FMA>(*x - shift);
        sum += *x;
    }
    folded(lanes, |a, b| a + b) + sum
}

/// Joins the lanes pairwise.
#[inline(always)]
fn folded(mut lanes: [f32; LANES], join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = join(lanes[lane], lanes[lane + half]);
        }
        half /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a kernel with every instruction set that this processor has.
    fn with_each<K: Kernel + Copy>(kernel: K) -> Vec<K::Output> {
        let mut outputs = vec![Simd::vectorize(pulp::Scalar, Compiled(kernel))];
        #[cfg(target_arch = "x86_64")]
        {
            outputs.extend(pulp::x86::V3::try_new().map(|simd| Simd::vectorize(simd, Compiled(kernel))));
            outputs.extend(pulp::x86::V4::try_new().map(|simd| Simd::vectorize(simd, Compiled(kernel))));
        }
        outputs.push(run(kernel));
        outputs
    }

    #[derive(Clone, Copy)]
    struct ExpOf<'a>(&'a [f32]);

    impl Kernel for ExpOf<'_> {
        type Output = (f32, f32, f32, Vec<f32>);

        #[inline(always)]
        fn run<const FMA: bool>(self) -> Self::Output {
            let mut values = self.0.to_vec();
            let highest = highest(&values);
            let squares = sum_pairs(&values, &values, mul_add::<FMA>);
            let sum = exp_and_sum::<FMA>(&mut values, 0.0);
            (highest, squares, sum, values)
        }
    }

    #[test]
    fn exponentials_and_sums_are_right_with_every_instruction_set() {
        let x: Vec<f32> = (0..2003).map(|i| (i as f32 * 0.618).sin() * 40.0 - 30.0).collect();
        let exact: Vec<f64> = x.iter().map(|x| f64::from(*x).exp()).collect();
        let squares: f64 = x.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
        for (highest, found_squares, sum, values) in with_each(ExpOf(&x)) {
            assert_eq!(highest, x.iter().copied().fold(f32::MIN, f32::max));
            assert!((f64::from(found_squares) / squares - 1.0).abs() < 1e-5);
            assert!((f64::from(sum) / exact.iter().sum::<f64>() - 1.0).abs() < 1e-5);
            for (found, exact) in values.iter().zip(&exact) {
                assert!((f64::from(*found) / exact - 1.0).abs() < 3e-7, "found {found}, expected {exact}");
            }
        }
    }

    #[test]
    fn exp_is_exact_at_zero_and_stays_in_range_far_out() {
        let x = [0.0, -1e30, f32::NEG_INFINITY, -87.1, -87.0, 1e30, f32::INFINITY, 88.0, f32::NAN];
        for (_, _, _, values) in with_each(ExpOf(&x)) {
            assert_eq!(values[..4], [1.0, 0.0, 0.0, 0.0]);
            assert!(values[4] > 1e-38 && values[4] < 2e-38);
            assert!(values[7].is_finite() && values[5] == values[7] && values[6] == values[7]);
            assert!(values[8].is_nan());
        }
    }
}
