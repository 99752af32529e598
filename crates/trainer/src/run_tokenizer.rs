//! The tokenizer of a run: of characters, or that of a pretrained model.

use std::path::Path;

use firebrick_core::{Message, TokenId, Tokenizer, TokenizerError};
use firebrick_models::{CharTokenizer, HuggingFaceTokenizer, ModelError};

use crate::{ModelSection, PretrainedModel, RunConfig, RunConfigError};

/// A tokenizer that can be written beside a model.
#[derive(Debug, Clone)]
pub(crate) enum RunTokenizer {
    Characters(CharTokenizer),
    Pretrained(Box<HuggingFaceTokenizer>),
}

impl RunTokenizer {
    /// The tokenizer that a config describes.
    pub(crate) fn of(config: &RunConfig) -> Result<Self, RunConfigError> {
        Self::check(config)?;
        let tokenizer = match (&config.model, &config.tokenizer.alphabet) {
            (ModelSection::Pretrained(model), _) => {
                Self::Pretrained(Box::new(Self::pretrained(config, model)?))
            }
            (ModelSection::Scratch(_), alphabet) => {
                Self::Characters(CharTokenizer::new(alphabet.as_deref().unwrap_or_default())?)
            }
        };
        let (tokens, vocabulary) = (tokenizer.vocab_size(), config.decoder()?.vocab_size);
        if vocabulary < tokens {
            return Err(RunConfigError::Combination {
                problem: format!("model.vocab_size = {vocabulary} but the tokenizer has {tokens} tokens"),
                fix: "raise model.vocab_size",
            });
        }
        Ok(tokenizer)
    }

    /// Whether `[tokenizer]` and `[model]` go together; nothing is read.
    pub(crate) fn check(config: &RunConfig) -> Result<(), RunConfigError> {
        let section = &config.tokenizer;
        let combination =
            |problem: &str, fix| Err(RunConfigError::Combination { problem: problem.into(), fix });
        match (&config.model, &section.alphabet) {
            (ModelSection::Scratch(_), Some(_)) if section.chat_template.is_some() => combination(
                "tokenizer.chat_template is given, but characters have no chat template",
                "leave it out",
            ),
            (ModelSection::Scratch(_), None) => combination(
                "the model is made from scratch, and there is no tokenizer",
                "give tokenizer.alphabet, or a pretrained model with model.path",
            ),
            (ModelSection::Pretrained(_), Some(_)) => combination(
                "tokenizer.alphabet is given, but the model of model.path has a tokenizer of its own",
                "leave it out",
            ),
            (ModelSection::Scratch(_), Some(_)) | (ModelSection::Pretrained(_), None) => Ok(()),
        }
    }

    fn pretrained(
        config: &RunConfig,
        model: &PretrainedModel,
    ) -> Result<HuggingFaceTokenizer, RunConfigError> {
        let adapter = model.path.join("tokenizer.json").is_file();
        let folder = match config.model.folder()? {
            Some(folder) if !adapter => folder.base().to_owned(),
            _ => model.path.clone(), // a folder that is missing is named by the error
        };
        let tokenizer = HuggingFaceTokenizer::load(folder)?;
        let Some(path) = &config.tokenizer.chat_template else { return Ok(tokenizer) };
        let text = std::fs::read_to_string(path)
            .map_err(|source| RunConfigError::Open { path: path.clone(), source })?;
        Ok(tokenizer.with_chat_template(&text)?)
    }

    /// SHA-256 of the chat template, if there is one.
    pub(crate) fn chat_template_sha256(&self) -> Option<String> {
        match self {
            Self::Characters(_) => None,
            Self::Pretrained(tokenizer) => tokenizer.chat_template_sha256(),
        }
    }

    /// Writes the tokenizer's files.
    pub(crate) fn save(&self, folder: &Path) -> Result<(), ModelError> {
        match self {
            Self::Characters(tokenizer) => tokenizer.save(folder.join("tokenizer.json")),
            Self::Pretrained(tokenizer) => tokenizer.save(folder),
        }
    }

    fn inner(&self) -> &dyn Tokenizer {
        match self {
            Self::Characters(tokenizer) => tokenizer,
            Self::Pretrained(tokenizer) => tokenizer.as_ref(),
        }
    }
}

impl Tokenizer for RunTokenizer {
    fn encode(&self, text: &str) -> Result<Vec<TokenId>, TokenizerError> {
        self.inner().encode(text)
    }

    fn decode(&self, tokens: &[TokenId]) -> String {
        self.inner().decode(tokens)
    }

    fn encode_chat(&self, messages: &[Message]) -> Result<Vec<TokenId>, TokenizerError> {
        self.inner().encode_chat(messages)
    }

    fn vocab_size(&self) -> usize {
        self.inner().vocab_size()
    }

    fn stop_tokens(&self) -> &[TokenId] {
        self.inner().stop_tokens()
    }
}
