//! Weights in the safetensors format, under the names and in the layouts of Hugging Face.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    path::Path,
};

use burn::{
    module::{Module, ModuleMapper, ModuleVisitor, Param},
    tensor::{Tensor, TensorData, backend::Backend},
};
use safetensors::{Dtype, SafeTensorError, View};

use crate::{
    Misshapen, ModelError,
    tensor_file::{decoded, dtype_of},
    weight_files::WeightFiles,
};

/// Which parameters of a model a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Selection {
    All,
    /// Those that are not frozen.
    Trained,
    /// The factors of low-rank adapters.
    Adapters,
}

impl Selection {
    fn has<B: Backend, const D: usize>(self, param: &Param<Tensor<B, D>>, place: &Place) -> bool {
        match self {
            Self::All => true,
            Self::Trained => param.is_require_grad(),
            Self::Adapters => place.adapter_factor().is_some(),
        }
    }
}

/// Writes the weights of a model to a safetensors file, adapters included.
///
/// A tensor is named by the path of its field (`model.layers.0.mlp.up_proj.weight`), the factors of an adapter as in PEFT
/// (`base_model.model.model.layers.0.mlp.up_proj.lora_A.weight`). The weight of a linear layer, which Burn keeps as
/// `[inputs, outputs]`, is written as `[outputs, inputs]`. One tensor at a time is copied. The same weights give the same bytes.
///
/// # Errors
/// When the file cannot be written or the model has elements that are not floating-point numbers.
pub fn save_safetensors<B: Backend, M: Module<B>>(
    model: &M,
    path: impl AsRef<Path>,
) -> Result<(), ModelError> {
    save(model, path.as_ref(), Selection::All)
}

/// [`save_safetensors`] without frozen weights. Without any it writes the same file.
///
/// # Errors
/// As [`save_safetensors`].
pub fn save_trained<B: Backend, M: Module<B>>(model: &M, path: impl AsRef<Path>) -> Result<(), ModelError> {
    save(model, path.as_ref(), Selection::Trained)
}

/// Whether some parameters of a model are frozen.
pub fn has_frozen_weights<B: Backend, M: Module<B>>(model: &M) -> bool {
    struct Frozen(bool);
    impl<B: Backend> ModuleVisitor<B> for Frozen {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            self.0 |= !param.is_require_grad();
        }
    }
    let mut frozen = Frozen(false);
    model.visit(&mut frozen);
    frozen.0
}

fn save<B: Backend, M: Module<B>>(model: &M, path: &Path, selection: Selection) -> Result<(), ModelError> {
    let tensors = collect_lazily(model, selection);
    for (name, tensor) in &tensors {
        if dtype_of(tensor.dtype).is_none() {
            return Err(ModelError::ElementType { name: name.clone(), dtype: format!("{:?}", tensor.dtype) });
        }
    }
    // Readers of the format ask which library's layouts a file has.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    safetensors::serialize_to_file(&tensors, Some(metadata), path).map_err(|source| match source {
        SafeTensorError::IoError(source) => ModelError::Write { path: path.into(), source },
        source => ModelError::Safetensors { path: path.into(), source },
    })
}

/// Returns the model with its weights replaced by those of a safetensors file, converted to the backend's
/// elements.
///
/// Names and layouts are those of [`save_safetensors`]; elements may be F64, F32, F16 or BF16. `path` is a file, or a folder
/// with `model.safetensors` or with shards and their `model.safetensors.index.json`. One tensor at a time is read.
///
/// # Errors
/// [`ModelError::Mismatch`] lists every tensor that is missing, not part of the model, or of another shape;
/// nothing is loaded in part.
pub fn load_safetensors<B: Backend, M: Module<B>>(model: M, path: impl AsRef<Path>) -> Result<M, ModelError> {
    load(model, path.as_ref(), Selection::All, &|_| false)
}

/// [`load_safetensors`] of what [`save_trained`] wrote; frozen weights stay.
///
/// # Errors
/// As [`load_safetensors`].
pub fn load_trained<B: Backend, M: Module<B>>(model: M, path: impl AsRef<Path>) -> Result<M, ModelError> {
    load(model, path.as_ref(), Selection::Trained, &|_| false)
}

/// [`load_safetensors`] of an adapter, whether or not the backend knows gradients; all other weights stay.
pub(crate) fn load_adapters<B: Backend, M: Module<B>>(model: M, path: &Path) -> Result<M, ModelError> {
    load(model, path, Selection::Adapters, &|_| false)
}

/// [`load_safetensors`] that passes by the tensors of files for which `is_passed_by` holds.
pub(crate) fn load_some<B: Backend, M: Module<B>>(
    model: M,
    path: &Path,
    is_passed_by: &dyn Fn(&str) -> bool,
) -> Result<M, ModelError> {
    load(model, path, Selection::All, is_passed_by)
}

fn load<B: Backend, M: Module<B>>(
    model: M,
    path: &Path,
    selection: Selection,
    is_passed_by: &dyn Fn(&str) -> bool,
) -> Result<M, ModelError> {
    let files = WeightFiles::open(path)?;
    let mut expected = Expected { place: Place::default(), selection, shapes: BTreeMap::new() };
    model.visit(&mut expected);
    check(path, &expected.shapes, &files, is_passed_by)?;
    let mut loader = Loader { place: Place::default(), selection, files, failed: None };
    let model = model.map(&mut loader);
    match loader.failed {
        Some(error) => Err(error),
        None => Ok(model),
    }
}

fn check(
    path: &Path,
    expected: &BTreeMap<String, Vec<usize>>,
    files: &WeightFiles,
    is_passed_by: &dyn Fn(&str) -> bool,
) -> Result<(), ModelError> {
    let (mut missing, mut misshapen) = (Vec::new(), Vec::new());
    for (name, shape) in expected {
        match files.info(name) {
            None => missing.push(name.clone()),
            Some(info) if info.shape != *shape => misshapen.push(Misshapen {
                name: name.clone(),
                expected: shape.clone(),
                found: info.shape.clone(),
            }),
            Some(info) if !matches!(info.dtype, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::BF16) => {
                return Err(ModelError::ElementType {
                    name: name.clone(),
                    dtype: format!("{:?}", info.dtype),
                });
            }
            Some(_) => {}
        }
    }
    let extra = files.names().filter(|name| !expected.contains_key(*name) && !is_passed_by(name));
    let extra: Vec<String> = extra.map(String::from).collect();
    if missing.is_empty() && misshapen.is_empty() && extra.is_empty() {
        return Ok(());
    }
    Err(ModelError::Mismatch { path: path.into(), missing, extra, misshapen })
}

/// Where a walk over a model's modules stands.
#[derive(Default)]
struct Place {
    /// Field names, and whether the module that holds them keeps matrices as `[inputs, outputs]`.
    path: Vec<(String, bool)>,
}

impl Place {
    fn enter(&mut self, name: &str, container: &str) {
        let transposed = ["Struct:Linear", "Struct:Projection", "Struct:LowRank"].contains(&container);
        self.path.push((name.into(), transposed));
    }

    fn exit(&mut self) {
        self.path.pop();
    }

    /// The parameter's name in a file.
    fn name(&self) -> String {
        let names: Vec<_> = self.path.iter().map(|(name, _)| name.as_str()).collect();
        match self.adapter_factor() {
            Some(factor) => {
                let layer = names[..names.len() - 2].join(".");
                format!("base_model.model.{layer}.lora_{}.weight", factor.to_uppercase())
            }
            None => names.join("."),
        }
    }

    /// `a` or `b`, if the parameter here is a factor of an adapter.
    fn adapter_factor(&self) -> Option<&str> {
        match self.path.as_slice() {
            [.., (lora, _), (factor, _)] if lora == "lora" => Some(factor),
            _ => None,
        }
    }

    /// Whether the file has the transpose of the parameter here.
    fn is_transposed(&self, dimensions: usize) -> bool {
        dimensions == 2 && self.path.last().is_some_and(|(_, linear)| *linear)
    }

    /// Shape in the file of a parameter of this shape.
    fn shape_in_file(&self, mut shape: Vec<usize>) -> Vec<usize> {
        if self.is_transposed(shape.len()) {
            shape.reverse();
        }
        shape
    }
}

/// Shapes of the tensors that a file must have.
struct Expected {
    place: Place,
    selection: Selection,
    shapes: BTreeMap<String, Vec<usize>>,
}

impl<B: Backend> ModuleVisitor<B> for Expected {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.place.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.place.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if self.selection.has(param, &self.place) {
            let shape = self.place.shape_in_file(param.lazy_shape().to_vec());
            self.shapes.insert(self.place.name(), shape);
        }
    }
}

/// The tensors of a model as a file has them, by name.
#[cfg(test)]
pub(crate) fn collect<B: Backend, M: Module<B>>(model: &M) -> BTreeMap<String, TensorData> {
    let tensors = collect_lazily(model, Selection::All).into_iter();
    tensors.map(|(name, tensor)| (name, (tensor.read)())).collect()
}

fn collect_lazily<B: Backend, M: Module<B>>(model: &M, selection: Selection) -> BTreeMap<String, Unread> {
    let mut collected = Collected { place: Place::default(), selection, tensors: BTreeMap::new() };
    model.visit(&mut collected);
    collected.tensors
}

/// A tensor that is copied from its device when it is written.
struct Unread {
    dtype: burn::tensor::DType,
    shape: Vec<usize>,
    read: Box<dyn Fn() -> TensorData>,
}

impl View for &Unread {
    fn dtype(&self) -> Dtype {
        dtype_of(self.dtype).expect("element types are checked before tensors are written")
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        (self.read)().as_bytes().to_vec().into()
    }

    fn data_len(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }
}

struct Collected {
    place: Place,
    selection: Selection,
    tensors: BTreeMap<String, Unread>,
}

impl<B: Backend> ModuleVisitor<B> for Collected {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.place.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.place.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if !self.selection.has(param, &self.place) {
            return;
        }
        let (value, transposed) = (param.val(), self.place.is_transposed(D));
        let shape = self.place.shape_in_file(value.shape().to_vec());
        let dtype = value.dtype();
        let file_shape = shape.clone();
        let read = move || {
            let data = value.to_data();
            if !transposed {
                return data;
            }
            let bytes = crate::transpose::transposed(data.as_bytes(), file_shape[1], dtype.size());
            TensorData::from_bytes_vec(bytes, file_shape.clone(), dtype)
        };
        self.tensors.insert(self.place.name(), Unread { dtype, shape, read: Box::new(read) });
    }
}

/// Replaces parameters by the tensors of files that have all of them.
struct Loader {
    place: Place,
    selection: Selection,
    files: WeightFiles,
    failed: Option<ModelError>,
}

impl Loader {
    fn read(&mut self, dimensions: usize) -> Result<TensorData, ModelError> {
        let (mut bytes, info) = self.files.read(&self.place.name())?;
        let shape = self.place.shape_in_file(info.shape);
        if self.place.is_transposed(dimensions) {
            let size = bytes.len() / shape.iter().product::<usize>().max(1);
            bytes = crate::transpose::transposed(&bytes, shape[1], size);
        }
        Ok(decoded(&bytes, info.dtype, shape).expect("element types are checked before weights are loaded"))
    }
}

impl<B: Backend> ModuleMapper<B> for Loader {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.place.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.place.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        if self.failed.is_some() || !self.selection.has(&param, &self.place) {
            return param;
        }
        match self.read(D) {
            Ok(data) => {
                let device = param.lazy_device();
                let id = param.id;
                let data = data.convert::<B::FloatElem>();
                param.transform_for_load(Tensor::from_data(data, &device), id)
            }
            Err(error) => {
                self.failed = Some(error);
                param
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use burn::tensor::DType;
    use burn_flex::Flex;
    use burn_ndarray::NdArray;
    use firebrick_core::CausalLm;

    use super::*;
    use crate::{
        Decoder, DecoderConfig,
        testing::{assert_close, int_tensor, jittered, tiny_config, values},
    };

    fn model<B: Backend>(config: &DecoderConfig, seed: u64) -> Decoder<B> {
        jittered(config.init(&Default::default(), seed).unwrap(), seed)
    }

    fn logits<B: crate::FusedOps>(model: &Decoder<B>) -> Vec<f64> {
        let hidden = model.hidden(int_tensor([3, 1, 4, 1, 5], [1, 5]), int_tensor(0..5, [1, 5]));
        values(&model.logits(hidden.squeeze_dim(0)))
    }

    #[test]
    fn saving_what_was_loaded_gives_the_same_bytes_on_either_backend() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name| folder.path().join(name);
        for config in [tiny_config(), DecoderConfig { attention_bias: true, qk_norm: true, ..tiny_config() }]
        {
            let original = model::<Flex>(&config, 1);
            save_safetensors(&original, path("a")).unwrap();
            let flex = load_safetensors(model::<Flex>(&config, 2), path("a")).unwrap();
            let ndarray = load_safetensors(model::<NdArray>(&config, 3), path("a")).unwrap();
            save_safetensors(&flex, path("b")).unwrap();
            save_safetensors(&ndarray, path("c")).unwrap();
            assert_eq!(fs::read(path("a")).unwrap(), fs::read(path("b")).unwrap());
            assert_eq!(fs::read(path("a")).unwrap(), fs::read(path("c")).unwrap());
            assert_eq!(logits(&original), logits(&flex));
            assert_close(&logits(&ndarray), &logits(&original), 1e-4);
        }
    }

    #[test]
    fn names_and_layouts_are_those_of_hugging_face() {
        let config = DecoderConfig { attention_bias: true, qk_norm: true, ..tiny_config() };
        let tensors = collect(&model::<Flex>(&config, 1));
        let shape = |name: &str| tensors[name].shape.to_vec();
        assert_eq!(shape("model.embed_tokens.weight"), [11, 16]);
        assert_eq!(shape("model.layers.1.self_attn.k_proj.weight"), [8, 16]);
        assert_eq!(shape("model.layers.1.self_attn.k_proj.bias"), [8]);
        assert_eq!(shape("model.layers.0.self_attn.q_norm.weight"), [4]);
        assert_eq!(shape("model.layers.0.self_attn.o_proj.weight"), [16, 16]);
        assert_eq!(shape("model.layers.0.mlp.gate_proj.weight"), [20, 16]);
        assert_eq!(shape("model.layers.0.mlp.down_proj.weight"), [16, 20]);
        assert_eq!(shape("model.layers.0.input_layernorm.weight"), [16]);
        assert_eq!(shape("model.layers.0.post_attention_layernorm.weight"), [16]);
        assert_eq!(shape("model.norm.weight"), [16]);
        assert_eq!(shape("lm_head.weight"), [11, 16]);
        assert_eq!(tensors.len(), 3 + 2 * 14);
    }

    #[test]
    fn every_tensor_that_does_not_fit_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        save_safetensors(&model::<Flex>(&tiny_config(), 1), &path).unwrap();
        let other = DecoderConfig {
            tie_word_embeddings: true,
            attention_bias: true,
            num_hidden_layers: 1,
            intermediate_size: 24,
            ..tiny_config()
        };
        let error = load_safetensors(model::<Flex>(&other, 1), &path).unwrap_err();
        let message = error.to_string();
        let ModelError::Mismatch { missing, extra, misshapen, .. } = error else { panic!("{message}") };
        assert_eq!(
            missing,
            ["k", "q", "v"].map(|which| format!("model.layers.0.self_attn.{which}_proj.bias"))
        );
        assert_eq!(extra.len(), 1 + 9); // the head and a layer
        assert_eq!(extra[0], "lm_head.weight");
        assert_eq!(misshapen.len(), 3);
        let down = "model.layers.0.mlp.down_proj.weight (expected [16, 24], found [16, 20])";
        assert_eq!(misshapen[0].to_string(), down);
        assert!(message.contains("model.safetensors") && message.contains(down), "{message}");
    }

    #[test]
    fn half_precision_files_load_and_integers_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let original = model::<Flex>(&tiny_config(), 1);
        let write = |convert: &dyn Fn(TensorData) -> TensorData, dtype| {
            let tensors = collect(&original);
            let converted: Vec<_> = tensors
                .into_iter()
                .map(|(name, tensor)| (name, tensor.shape.to_vec(), convert(tensor)))
                .collect();
            let views = converted.iter().map(|(name, shape, data)| {
                (name, safetensors::tensor::TensorView::new(dtype, shape.clone(), data.as_bytes()).unwrap())
            });
            fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
        };
        for (dtype, file_dtype) in
            [(DType::BF16, Dtype::BF16), (DType::F16, Dtype::F16), (DType::F64, Dtype::F64)]
        {
            write(&|data| data.convert_dtype(dtype), file_dtype);
            let loaded = collect(&load_safetensors(model::<NdArray>(&tiny_config(), 2), &path).unwrap());
            for (name, tensor) in collect(&original) {
                let rounded = tensor.convert_dtype(dtype).convert_dtype(DType::F32);
                assert_eq!(loaded[&name].as_bytes(), rounded.as_bytes(), "{name} from {dtype:?}");
            }
        }
        write(&|data| data.convert_dtype(DType::I32), Dtype::I32);
        let error = load_safetensors(original.clone(), &path).unwrap_err().to_string();
        assert!(error.contains(".weight` has elements of type I32"), "{error}");
        fs::write(&path, "no weights").unwrap();
        let error = load_safetensors(original, &path).unwrap_err().to_string();
        assert!(error.contains("not a safetensors file"), "{error}");
    }
}
