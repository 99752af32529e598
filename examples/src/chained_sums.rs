//! Chained sums with a worked solution: a small task that a small model can learn from nothing.

use std::collections::{BTreeMap, HashSet};
use std::ops::RangeInclusive;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// What a data set of chained sums holds. The one that is committed is [`Self::CHAINED`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChainedSumsSpec {
    /// Name of the data set and of its folder.
    pub name: &'static str,
    /// Seed of the committed files.
    pub seed: u64,
    /// Numbers of terms of a problem.
    pub terms: RangeInclusive<u64>,
    /// Values of a term, without its sign.
    pub term: RangeInclusive<u64>,
    /// Values that the running total keeps to; they hold every term.
    pub total: RangeInclusive<i64>,
    /// Number of problems to train on by reinforcement.
    pub train: usize,
    /// Number of problems to evaluate on.
    pub heldout: usize,
    /// Number of worked solutions.
    pub sft: usize,
}

impl ChainedSumsSpec {
    /// Seven to nine one-digit terms, such as `2+4-1+8-4+6+9=`: minutes of learning on a CPU.
    pub const CHAINED: Self = Self {
        name: "chained_sums",
        seed: 20_260_101,
        terms: 7..=9,
        term: 1..=9,
        total: 0..=99,
        train: 2000,
        heldout: 256,
        sft: 4000,
    };

    /// Number of problems that the data set holds.
    fn wanted(&self) -> usize {
        self.train + self.heldout + self.sft
    }

    /// Number of different problems that fit the description.
    fn possible(&self) -> u64 {
        // How many beginnings of the present length lead to each total.
        let mut beginnings = BTreeMap::from_iter(self.term.clone().map(|term| (term as i64, 1_u64)));
        let mut possible = 0;
        for length in 1..=*self.terms.end() {
            if self.terms.contains(&length) {
                possible += beginnings.values().sum::<u64>();
            }
            let mut longer = BTreeMap::new();
            for (total, ways) in beginnings {
                let terms = self.term.clone().flat_map(|term| [term as i64, -(term as i64)]);
                for next in terms.map(|term| total + term).filter(|next| self.total.contains(next)) {
                    *longer.entry(next).or_insert(0) += ways;
                }
            }
            beginnings = longer;
        }
        possible
    }
}

/// A sum such as `3+4-7+8=`, whose running total never leaves the range of its data set.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ChainedSum {
    /// The terms with their signs; the first is positive.
    terms: Vec<i64>,
}

impl ChainedSum {
    fn draw(spec: &ChainedSumsSpec, rng: &mut ChaCha8Rng) -> Self {
        let mut terms = vec![draw_within(rng, &spec.term) as i64];
        let mut total = terms[0];
        let length = draw_within(rng, &spec.terms) as usize;
        while terms.len() < length {
            let magnitude = draw_within(rng, &spec.term) as i64;
            let term = if draw_within(rng, &(0..=1)) == 0 { magnitude } else { -magnitude };
            if spec.total.contains(&(total + term)) {
                total += term;
                terms.push(term);
            }
        }
        Self { terms }
    }

    /// The question: the terms and an equals sign.
    pub fn question(&self) -> String {
        let rest: String = self.terms[1..].iter().map(|term| format!("{term:+}")).collect();
        format!("{}{rest}=", self.terms[0])
    }

    /// The sum.
    pub fn answer(&self) -> i64 {
        self.terms.iter().sum()
    }

    /// One line per step, such as `9+5=14`, and the line `Answer: 14`.
    pub fn worked_solution(&self) -> String {
        let mut solution = String::new();
        let mut total = self.terms[0];
        for term in &self.terms[1..] {
            let next = total + term;
            solution.push_str(&format!("{total}{term:+}={next}\n"));
            total = next;
        }
        solution.push_str(&format!("Answer: {total}"));
        solution
    }
}

/// A data set: three lists of problems, no problem twice in any of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainedSums {
    /// What the problems are like.
    pub spec: ChainedSumsSpec,
    /// Problems to train on by reinforcement.
    pub train: Vec<ChainedSum>,
    /// Problems to evaluate on.
    pub heldout: Vec<ChainedSum>,
    /// Problems whose worked solutions are imitated first.
    pub sft: Vec<ChainedSum>,
}

impl ChainedSums {
    /// Draws a data set. The same spec gives the same problems on every machine: the draws depend on ChaCha8 alone.
    ///
    /// # Panics
    /// When the spec asks for more than half of all problems that fit it.
    pub fn generate(spec: ChainedSumsSpec) -> Self {
        let wanted = spec.wanted();
        assert!(
            2 * wanted as u64 <= spec.possible(),
            "{}: {wanted} problems of {} are too many to be drawn by rejection",
            spec.name,
            spec.possible()
        );
        let mut key = [0; 32];
        key[..8].copy_from_slice(&spec.seed.to_le_bytes());
        let mut rng = ChaCha8Rng::from_seed(key);
        let mut seen = HashSet::with_capacity(wanted);
        let mut problems = Vec::with_capacity(wanted);
        while problems.len() < wanted {
            let problem = ChainedSum::draw(&spec, &mut rng);
            if seen.insert(problem.clone()) {
                problems.push(problem);
            }
        }
        // Where most short problems are taken, later draws are longer ones: shuffled, the lists are alike.
        for last in (1..wanted).rev() {
            problems.swap(last, draw_within(&mut rng, &(0..=last as u64)) as usize);
        }
        let sft = problems.split_off(spec.train + spec.heldout);
        let heldout = problems.split_off(spec.train);
        Self { train: problems, heldout, sft, spec }
    }
}

/// A uniform draw from `range` by rejection, so that it depends on no library's way of drawing.
fn draw_within(rng: &mut ChaCha8Rng, range: &RangeInclusive<u64>) -> u64 {
    let count = range.end() - range.start() + 1;
    let fair = u64::MAX - u64::MAX % count; // a multiple of `count`
    loop {
        let draw = rng.next_u64();
        if draw < fair {
            return range.start() + draw % count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two or three one-digit terms: few enough problems to count.
    const SHORT: ChainedSumsSpec = ChainedSumsSpec {
        name: "short_sums",
        seed: 20_260_102,
        terms: 2..=3,
        term: 1..=9,
        total: 0..=99,
        train: 400,
        heldout: 100,
        sft: 200,
    };
    const SPECS: [ChainedSumsSpec; 2] = [ChainedSumsSpec::CHAINED, SHORT];

    #[test]
    fn a_problem_is_written_as_a_question_and_worked_line_by_line() {
        let problem = ChainedSum { terms: vec![23, 45, -17, 38, -89] };
        assert_eq!(problem.question(), "23+45-17+38-89=");
        assert_eq!(problem.worked_solution(), "23+45=68\n68-17=51\n51+38=89\n89-89=0\nAnswer: 0");
        assert_eq!(problem.answer(), 0);
    }

    #[test]
    fn problems_keep_to_their_ranges_and_use_all_of_them() {
        for spec in SPECS {
            let data = ChainedSums::generate(spec.clone());
            let (mut lengths, mut magnitudes) = (HashSet::new(), HashSet::new());
            for problem in data.train.iter().chain(&data.heldout).chain(&data.sft) {
                assert!(problem.terms[0] > 0);
                lengths.insert(problem.terms.len() as u64);
                let mut total = 0;
                for term in &problem.terms {
                    magnitudes.insert(term.unsigned_abs());
                    total += term;
                    assert!(spec.total.contains(&total), "{problem:?}");
                }
            }
            assert_eq!(lengths, spec.terms.collect());
            assert_eq!(magnitudes, spec.term.collect());
        }
    }

    /// 9 · 9 sums of two one-digit numbers, and 9 + 8 + … + 1 differences that are not negative.
    #[test]
    fn possible_problems_are_counted_with_both_signs_and_within_the_total() {
        let two_terms = ChainedSumsSpec { terms: 2..=2, ..SHORT };
        assert_eq!(two_terms.possible(), 81 + 45);
        let one_to_two = ChainedSumsSpec { terms: 1..=2, total: 0..=10, ..SHORT };
        assert_eq!(one_to_two.possible(), 9 + 45 + 45);
    }

    #[test]
    #[should_panic(expected = "64 problems of 126 are too many")]
    fn more_than_half_of_all_problems_is_refused() {
        let spec = ChainedSumsSpec { terms: 2..=2, train: 60, heldout: 2, sft: 2, ..SHORT };
        ChainedSums::generate(spec);
    }

    /// 126 of 700 problems have two terms if all of them are drawn.
    #[test]
    fn the_lists_have_short_problems_in_like_shares() {
        let data = ChainedSums::generate(SHORT);
        for list in [&data.train, &data.heldout, &data.sft] {
            let short = list.iter().filter(|problem| problem.terms.len() == 2).count();
            let share = short as f64 / list.len() as f64;
            assert!((0.08..0.28).contains(&share), "{short} of {}", list.len());
        }
    }

    #[test]
    fn another_seed_gives_other_problems() {
        let with_seed = |seed| ChainedSums::generate(ChainedSumsSpec { seed, ..SHORT });
        assert_ne!(with_seed(1).train, with_seed(2).train);
    }

    #[test]
    fn draws_are_uniform_over_both_ends_of_the_range() {
        let mut rng = ChaCha8Rng::from_seed([7; 32]);
        let mut counts = [0_i32; 3];
        for _ in 0..3000 {
            counts[draw_within(&mut rng, &(4..=6)) as usize - 4] += 1;
        }
        let five_deviations = 130;
        assert!(counts.iter().all(|count| (count - 1000).abs() < five_deviations), "{counts:?}");
    }
}
