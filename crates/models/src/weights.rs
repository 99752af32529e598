//! Weights in the safetensors format, under the names and in the layouts of Hugging Face.

use std::{borrow::Cow, collections::BTreeMap, path::Path};

use burn::{
    module::{Module, ModuleMapper, ModuleVisitor, Param},
    tensor::{Tensor, TensorData, backend::Backend},
};
use safetensors::{Dtype, SafeTensors};

use crate::{
    Misshapen, ModelError, files,
    tensor_file::{decoded, save_tensors},
};

/// Writes the weights of a model to a safetensors file.
///
/// A tensor is named by the path of its field (`model.layers.0.mlp.up_proj.weight`). The weight of a
/// `Linear`, which Burn keeps as `[inputs, outputs]`, is written as `[outputs, inputs]`. The same weights
/// give the same bytes.
///
/// # Errors
/// When the file cannot be written or the model has elements that are not floating-point numbers.
pub fn save_safetensors<B: Backend, M: Module<B>>(
    model: &M,
    path: impl AsRef<Path>,
) -> Result<(), ModelError> {
    save_tensors(&collect(model), path)
}

/// Returns the model with its weights replaced by those of a safetensors file, converted to the backend's
/// elements.
///
/// Names and layouts are those of [`save_safetensors`]; elements may be F64, F32, F16 or BF16.
///
/// # Errors
/// [`ModelError::Mismatch`] lists every tensor that is missing, not part of the model, or of another shape;
/// nothing is loaded in part.
pub fn load_safetensors<B: Backend, M: Module<B>>(model: M, path: impl AsRef<Path>) -> Result<M, ModelError> {
    let path = path.as_ref();
    let bytes = files::read(path)?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|source| ModelError::Safetensors { path: path.into(), source })?;
    let mut expected = Expected { place: Place::default(), shapes: BTreeMap::new() };
    model.visit(&mut expected);
    check(path, &expected.shapes, &file)?;
    for (name, view) in file.iter() {
        if !matches!(view.dtype(), Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::BF16) {
            return Err(ModelError::ElementType { name: name.into(), dtype: format!("{:?}", view.dtype()) });
        }
    }
    Ok(model.map(&mut Loader { place: Place::default(), file }))
}

fn check(path: &Path, expected: &BTreeMap<String, Vec<usize>>, file: &SafeTensors) -> Result<(), ModelError> {
    let (mut missing, mut misshapen) = (Vec::new(), Vec::new());
    for (name, shape) in expected {
        match file.tensor(name) {
            Err(_) => missing.push(name.clone()),
            Ok(view) if view.shape() != shape => misshapen.push(Misshapen {
                name: name.clone(),
                expected: shape.clone(),
                found: view.shape().to_vec(),
            }),
            Ok(_) => {}
        }
    }
    let mut extra: Vec<_> = file.names().into_iter().filter(|name| !expected.contains_key(*name)).collect();
    extra.sort_unstable();
    if missing.is_empty() && misshapen.is_empty() && extra.is_empty() {
        return Ok(());
    }
    let extra = extra.into_iter().map(String::from).collect();
    Err(ModelError::Mismatch { path: path.into(), missing, extra, misshapen })
}

/// Where a walk over a model's modules stands.
#[derive(Default)]
struct Place {
    /// Field names, and types of the modules that hold them.
    path: Vec<(String, bool)>,
}

impl Place {
    fn enter(&mut self, name: &str, container: &str) {
        self.path.push((name.into(), container == "Struct:Linear"));
    }

    fn exit(&mut self) {
        self.path.pop();
    }

    fn name(&self) -> String {
        let names: Vec<_> = self.path.iter().map(|(name, _)| name.as_str()).collect();
        names.join(".")
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
        let shape = self.place.shape_in_file(param.lazy_shape().to_vec());
        self.shapes.insert(self.place.name(), shape);
    }
}

/// The tensors of a model as a file has them, by name.
pub(crate) fn collect<B: Backend, M: Module<B>>(model: &M) -> BTreeMap<String, TensorData> {
    let mut collected = Collected { place: Place::default(), tensors: BTreeMap::new() };
    model.visit(&mut collected);
    collected.tensors
}

struct Collected {
    place: Place,
    tensors: BTreeMap<String, TensorData>,
}

impl<B: Backend> ModuleVisitor<B> for Collected {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.place.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.place.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let mut data = param.val().into_data();
        let shape = self.place.shape_in_file(data.shape.to_vec());
        if self.place.is_transposed(D) {
            let bytes = transposed(data.as_bytes(), shape[0], shape[1]);
            data = TensorData::from_bytes_vec(bytes, shape.clone(), data.dtype);
        }
        self.tensors.insert(self.place.name(), data);
    }
}

/// Replaces parameters by the tensors of a file that has all of them.
struct Loader<'a> {
    place: Place,
    file: SafeTensors<'a>,
}

impl<B: Backend> ModuleMapper<B> for Loader<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.place.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.place.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let view = self.file.tensor(&self.place.name()).expect("names are checked before weights are loaded");
        let shape = self.place.shape_in_file(view.shape().to_vec());
        let mut bytes = Cow::Borrowed(view.data());
        if self.place.is_transposed(D) {
            bytes = transposed(&bytes, shape[0], shape[1]).into();
        }
        let data = decoded(&bytes, view.dtype(), shape)
            .expect("element types are checked before weights are loaded")
            .convert::<B::FloatElem>();
        let device = param.lazy_device();
        let id = param.id;
        param.transform_for_load(Tensor::from_data(data, &device), id)
    }
}

/// The bytes of a matrix `[columns, rows]` as those of its transpose `[rows, columns]`.
fn transposed(bytes: &[u8], rows: usize, columns: usize) -> Vec<u8> {
    let size = bytes.len() / (rows * columns);
    let mut out = Vec::with_capacity(bytes.len());
    for row in 0..rows {
        for column in 0..columns {
            let start = (column * rows + row) * size;
            out.extend_from_slice(&bytes[start..start + size]);
        }
    }
    out
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
