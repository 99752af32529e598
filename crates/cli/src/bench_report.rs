//! What `firebrick bench step` measured, as a table and as JSON.

use std::fmt;

use firebrick_trainer::Timings;
use serde::Serialize;

use crate::bench_step::Shape;

/// The result of a benchmark.
#[derive(Debug, Serialize)]
pub(crate) struct BenchReport<'a> {
    pub(crate) device: String,
    pub(crate) objective: &'a str,
    pub(crate) parameters: usize,
    pub(crate) threads: usize,
    pub(crate) micro_batch_tokens: usize,
    pub(crate) parallel_parts: usize,
    pub(crate) recompute_activations: bool,
    pub(crate) epochs: usize,
    pub(crate) warmup: usize,
    pub(crate) shape: Shape,
    #[serde(flatten)]
    pub(crate) measured: Measured,
}

/// The measured steps.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    repetitions: usize,
    /// Completions of a step.
    completions: usize,
    /// Tokens that were generated in a step.
    generated_tokens: u64,
    /// Of a step, over the median of its generation.
    generated_tokens_per_second: f64,
    /// Seconds of each part and of the whole step, the wait for the device included.
    #[serde(serialize_with = "as_map")]
    seconds: Vec<(&'static str, Spread)>,
    /// Processor time of a step, over all threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_seconds: Option<Spread>,
    /// From the start of the process to the end of the first step.
    seconds_to_first_step: f64,
    /// Mean absolute difference (nats) between the engine's log-probs and the trainer's before the first optimizer step.
    #[serde(skip_serializing_if = "Option::is_none")]
    log_prob_mismatch: Option<f64>,
    /// Largest resident memory of the process so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_resident_bytes: Option<u64>,
}

impl Measured {
    /// Sums measured steps up, of which there is at least one.
    pub(crate) fn new(
        steps: &[MeasuredStep],
        completions: usize,
        generated_tokens: u64,
        seconds_to_first_step: f64,
        log_prob_mismatch: Option<f64>,
    ) -> Self {
        let names = Timings::default().parts().map(|(name, _)| name).into_iter().enumerate();
        let mut seconds: Vec<(&'static str, Spread)> = names
            .map(|(part, name)| (name, Spread::of(steps.iter().map(|step| step.timings.parts()[part].1))))
            .collect();
        seconds.push(("total", Spread::of(steps.iter().map(|step| step.seconds))));
        let generation = Spread::of(steps.iter().map(|step| step.timings.generate));
        let cpu_seconds: Option<Vec<f64>> = steps.iter().map(|step| step.cpu_seconds).collect();
        Self {
            repetitions: steps.len(),
            completions,
            generated_tokens,
            generated_tokens_per_second: generated_tokens as f64 / generation.median,
            seconds,
            cpu_seconds: cpu_seconds.map(Spread::of),
            seconds_to_first_step,
            log_prob_mismatch,
            peak_resident_bytes: peak_resident_bytes(),
        }
    }
}

/// What one step took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MeasuredStep {
    pub(crate) timings: Timings,
    /// Of the whole step, the wait for the device included.
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: Option<f64>,
}

/// Median and extremes of some measurements.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    /// # Panics
    /// When there is no value.
    fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let last = values.len() - 1;
        let median = (values[last / 2] + values[last.div_ceil(2)]) / 2.0;
        Self { median, min: values[0], max: values[last] }
    }
}

fn as_map<S: serde::Serializer>(
    seconds: &[(&'static str, Spread)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(seconds.iter().copied())
}

/// Processor time of this process so far, over all threads, where the system tells.
pub(crate) fn cpu_seconds() -> Option<f64> {
    #[cfg(unix)]
    {
        use nix::sys::{
            resource::{UsageWho, getrusage},
            time::TimeValLike,
        };
        let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
        let microseconds = (usage.user_time() + usage.system_time()).num_microseconds();
        Some(microseconds as f64 * 1e-6)
    }
    #[cfg(not(unix))]
    None
}

/// What Linux reports as the high-water mark.
pub(crate) fn peak_resident_bytes() -> Option<u64> {
    high_water_mark(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn high_water_mark(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(kibibytes * 1024)
}

impl fmt::Display for BenchReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let measured = &self.measured;
        writeln!(
            f,
            "{} on {}, {} threads, {} parts: {} parameters, {} completions and {} new tokens a step",
            self.objective,
            self.device,
            self.threads,
            self.parallel_parts,
            self.parameters,
            measured.completions,
            measured.generated_tokens
        )?;
        writeln!(f, "{:<18} {:>10} {:>10} {:>10}", "seconds", "median", "min", "max")?;
        for (name, Spread { median, min, max }) in &measured.seconds {
            writeln!(f, "{name:<18} {median:>10.4} {min:>10.4} {max:>10.4}")?;
        }
        if let Some(Spread { median, min, max }) = measured.cpu_seconds {
            writeln!(f, "{:<18} {median:>10.4} {min:>10.4} {max:>10.4}", "CPU-seconds")?;
        }
        writeln!(f, "{} steps measured, {} before them", measured.repetitions, self.warmup)?;
        writeln!(f, "{:.0} tokens generated a second", measured.generated_tokens_per_second)?;
        if let Some(mismatch) = measured.log_prob_mismatch {
            writeln!(f, "{mismatch:.1e} nats between log-probs of engine and trainer (mean)")?;
        }
        if let Some(bytes) = measured.peak_resident_bytes {
            writeln!(f, "{:.1} MiB resident at the peak", bytes as f64 / f64::from(1 << 20))?;
        }
        write!(f, "{:.2} s to the end of the first step", measured.seconds_to_first_step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_in_the_middle() {
        assert_eq!(Spread::of([5.0, 1.0, 3.0]), Spread { median: 3.0, min: 1.0, max: 5.0 });
        assert_eq!(Spread::of([8.0, 1.0, 4.0, 2.0]), Spread { median: 3.0, min: 1.0, max: 8.0 });
        assert_eq!(Spread::of([7.0]), Spread { median: 7.0, min: 7.0, max: 7.0 });
        assert_eq!(Spread::of([1.0, 2.0]).median, 1.5);
    }

    #[test]
    fn the_high_water_mark_is_read_in_bytes() {
        assert_eq!(high_water_mark("VmPeak:\t 9 kB\nVmHWM:\t    1234 kB\nVmRSS:\t 7 kB\n"), Some(1_263_616));
        assert_eq!(high_water_mark("VmRSS:\t 7 kB\n"), None);
    }

    #[test]
    fn parts_are_summed_up_by_name_and_tokens_are_per_second_of_generation() {
        let step = |generate, seconds, cpu_seconds| MeasuredStep {
            timings: Timings { generate, verify: 0.5, ..Timings::default() },
            seconds,
            cpu_seconds,
        };
        let steps = [step(4.0, 5.0, Some(8.0)), step(2.0, 3.0, Some(4.0)), step(3.0, 9.0, Some(1.0))];
        let measured = Measured::new(&steps, 6, 36, 1.5, None);
        let value = serde_json::to_value(&measured).unwrap();
        assert_eq!(value["seconds"]["generate"], serde_json::json!({"median": 3.0, "min": 2.0, "max": 4.0}));
        assert_eq!(value["seconds"]["verify"]["max"], 0.5);
        assert_eq!(value["seconds"]["total"], serde_json::json!({"median": 5.0, "min": 3.0, "max": 9.0}));
        assert_eq!(value["generated_tokens_per_second"], 12.0);
        assert_eq!(value["repetitions"], 3);
        assert_eq!(value["cpu_seconds"], serde_json::json!({"median": 4.0, "min": 1.0, "max": 8.0}));
        assert!(value.get("log_prob_mismatch").is_none());

        let unknown = Measured::new(&[steps[0], step(1.0, 1.0, None)], 6, 36, 1.5, None);
        assert!(serde_json::to_value(&unknown).unwrap().get("cpu_seconds").is_none());
    }

    #[cfg(unix)]
    #[test]
    fn processor_time_grows_with_work() {
        let before = cpu_seconds().unwrap();
        let sum: f64 = (0..10_000_000).map(|i| std::hint::black_box(f64::from(i)).sqrt()).sum();
        assert!(sum > 0.0 && cpu_seconds().unwrap() > before);
    }
}
