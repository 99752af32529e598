//! The moments of AdamW as named tensors, and back.
//!
//! Burn keys an optimizer's record by parameter ids that are drawn anew in every process. On disk a moment has the name
//! of its parameter: `<path>.moment_1`, `<path>.moment_2`, `<path>.time`.

use std::collections::{BTreeMap, HashMap};

use burn::{
    module::{AutodiffModule, ModuleVisitor, Param, ParamId},
    optim::{AdamW, AdamWState, AdaptiveMomentumState, record::AdaptorRecord},
    tensor::{Tensor, TensorData, backend::AutodiffBackend},
};

/// What an optimizer remembers of each parameter.
pub(crate) type Moments<B> = HashMap<ParamId, AdaptorRecord<AdamW, B>>;

/// The moments of all parameters of `model` that have any.
pub(crate) fn to_tensors<B: AutodiffBackend, M: AutodiffModule<B>>(
    model: &M,
    moments: Moments<B>,
) -> BTreeMap<String, TensorData> {
    let mut export = Export { path: Path::default(), moments, tensors: BTreeMap::new() };
    model.visit(&mut export);
    export.tensors
}

/// The moments that `tensors` hold for the parameters of `model`: those of matrices, and those of the rest.
///
/// # Errors
/// Says which tensors are incomplete, misshapen or of no parameter.
pub(crate) fn from_tensors<B: AutodiffBackend, M: AutodiffModule<B>>(
    model: &M,
    tensors: BTreeMap<String, TensorData>,
) -> Result<(Moments<B>, Moments<B>), String> {
    let mut import = Import {
        path: Path::default(),
        tensors,
        matrices: Moments::new(),
        rest: Moments::new(),
        problems: Vec::new(),
    };
    model.visit(&mut import);
    let Import { tensors, matrices, rest, mut problems, .. } = import;
    problems.extend(tensors.into_keys().map(|name| format!("{name} belongs to no parameter")));
    if problems.is_empty() { Ok((matrices, rest)) } else { Err(problems.join(", ")) }
}

/// Names of the modules on the way to a parameter.
#[derive(Default)]
struct Path(Vec<String>);

impl Path {
    fn names(&self) -> [String; 3] {
        ["moment_1", "moment_2", "time"].map(|what| format!("{}.{what}", self.0.join(".")))
    }
}

struct Export<B: AutodiffBackend> {
    path: Path,
    moments: Moments<B>,
    tensors: BTreeMap<String, TensorData>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Export<B> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.0.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.0.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some(record) = self.moments.remove(&param.id) else { return };
        let AdaptiveMomentumState { time, moment_1, moment_2, .. } = record.into_state::<D>().momentum;
        let [first, second, count] = self.path.names();
        self.tensors.insert(first, moment_1.into_data());
        self.tensors.insert(second, moment_2.into_data());
        self.tensors.insert(count, TensorData::new(vec![time as i64], [1]));
    }
}

struct Import<B: AutodiffBackend> {
    path: Path,
    tensors: BTreeMap<String, TensorData>,
    matrices: Moments<B>,
    rest: Moments<B>,
    problems: Vec<String>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Import<B> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.0.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.0.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let names = self.path.names();
        let [Some(first), Some(second), Some(count)] = names.each_ref().map(|name| self.tensors.remove(name))
        else {
            // A parameter without moments has had no gradient yet; one with only some of the three is torn.
            let found: Vec<&String> = names.iter().filter(|name| self.tensors.contains_key(*name)).collect();
            if !found.is_empty() {
                self.problems.push(format!("{} stands alone", found[0]));
            }
            return;
        };
        let shape = param.lazy_shape().to_vec();
        for (name, data) in names.iter().zip([&first, &second]) {
            if data.shape.to_vec() != shape {
                self.problems.push(format!("{name} (expected {shape:?}, found {:?})", data.shape.to_vec()));
                return;
            }
        }
        let device = param.lazy_device();
        let tensor = |data: TensorData| Tensor::<B::InnerBackend, D>::from_data(data, &device);
        let momentum = AdaptiveMomentumState {
            time: count.iter::<i64>().next().unwrap_or(0) as usize,
            moment_1: tensor(first),
            moment_2: tensor(second),
            max_moment_2: None,
        };
        let group = if D >= 2 { &mut self.matrices } else { &mut self.rest };
        group.insert(param.id, AdaptorRecord::from_state(AdamWState::<_, D>::new(momentum)));
    }
}
