//! The task of the benchmark: numbers in, numbers out, paid by parity.

use firebrick_core::{
    Message, RewardVerifier, Sample, TokenId, Tokenizer, TokenizerError, Verdict, VerifyError,
};

/// Tokens as numbers in text. No token ends a response, so exactly as many tokens are generated as may be.
#[derive(Debug)]
pub(crate) struct Numbers {
    pub(crate) vocab_size: usize,
}

impl Tokenizer for Numbers {
    fn encode(&self, text: &str) -> Result<Vec<TokenId>, TokenizerError> {
        let token = |word: &str| match word.parse::<TokenId>() {
            Ok(token) if (token as usize) < self.vocab_size => Ok(token),
            _ => Err(TokenizerError::Chat {
                reason: format!("`{word}` is not a token id below {}", self.vocab_size),
            }),
        };
        text.split_whitespace().map(token).collect()
    }

    fn decode(&self, tokens: &[TokenId]) -> String {
        tokens.iter().map(TokenId::to_string).collect::<Vec<_>>().join(" ")
    }

    fn encode_chat(&self, messages: &[Message]) -> Result<Vec<TokenId>, TokenizerError> {
        let parts = messages.iter().map(|message| self.encode(&message.content));
        Ok(parts.collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn stop_tokens(&self) -> &[TokenId] {
        &[]
    }
}

/// Pays 1 for tokens with an odd sum: about half of the completions, so groups have something to compare.
#[derive(Debug)]
pub(crate) struct Parity;

impl RewardVerifier for Parity {
    fn verify(&self, sample: &Sample<'_>) -> Result<Verdict, VerifyError> {
        let ones: TokenId = sample.tokens.iter().map(|token| token % 2).sum();
        Ok(Verdict::scored(f64::from(ones % 2)))
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{FinishReason, Prompt};

    use super::*;

    #[test]
    fn tokens_are_read_as_they_are_written() {
        let numbers = Numbers { vocab_size: 12 };
        assert_eq!(numbers.encode("3 0 11").unwrap(), [3, 0, 11]);
        assert_eq!(numbers.decode(&[3, 0, 11]), "3 0 11");
        let chat = [Message::user("1 2"), Message::user("3")];
        assert_eq!(numbers.encode_chat(&chat).unwrap(), [1, 2, 3]);
        let error = numbers.encode("3 12").unwrap_err().to_string();
        assert!(error.contains("`12`") && error.contains("below 12"), "{error}");
    }

    #[test]
    fn an_odd_sum_is_paid() {
        let prompt = Prompt::new("p", "1", "");
        let reward = |tokens: &[TokenId]| {
            let sample = Sample::new(&prompt, "", tokens, FinishReason::Length);
            Parity.verify(&sample).unwrap().reward()
        };
        assert_eq!(reward(&[2, 3, u32::MAX, 7]), Some(1.0));
        assert_eq!(reward(&[2, 3, 7]), Some(0.0));
    }
}
