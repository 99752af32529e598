//! Decoder language models, the operations they are made of, their weights and tokenizers.
//!
//! [`Decoder`] is the one decoder of the crate: pre-norm, rotary positions, grouped-query attention, gated
//! feed-forward (the Llama and Qwen families). [`DecoderConfig`] describes it under the names of Hugging Face
//! and draws its initial weights, the same on every backend. It implements [`firebrick_core::CausalLm`] for
//! every backend with [`FusedOps`], the trait that names the operations worth a kernel of their own.
//!
//! Backends are compiled in by the features `flex`, `ndarray`, `cuda` and `wgpu`; none is on by default.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod char_tokenizer;
mod config;
mod decoder;
mod error;
mod files;
mod fused;
mod hugging_face;
mod init;
mod kv_cache;
mod layer;
mod lora;
mod mask;
mod projection;
#[cfg(test)]
mod reference;
mod rms_norm;
mod rope_scaling;
mod rotary_table;
mod self_attention;
mod tensor_file;
#[cfg(test)]
mod testing;
mod transpose;
mod value_model;
mod weight_files;
mod weights;

pub use char_tokenizer::CharTokenizer;
pub use config::DecoderConfig;
pub use decoder::{Decoder, DecoderBody};
pub use error::{Misshapen, ModelError};
pub use fused::FusedOps;
pub use hugging_face::{ChatTemplate, HuggingFaceTokenizer, ModelFolder, SpecialTokens};
pub use kv_cache::KvCache;
pub use layer::{DecoderLayer, GatedMlp};
pub use lora::LoraConfig;
pub use mask::CausalMask;
pub use projection::{LowRank, Projection};
pub use rms_norm::RmsNorm;
pub use rope_scaling::RopeScaling;
pub use rotary_table::{RotaryAngles, RotaryTable};
pub use self_attention::SelfAttention;
pub use tensor_file::{load_tensors, save_tensors};
pub use value_model::ValueModel;
pub use weights::{has_frozen_weights, load_safetensors, load_trained, save_safetensors, save_trained};
