// What the reference (Hugging Face's `tokenizers`, written in Rust) makes of a corpus.

// The reference's answers: ids with and without the special tokens of the post-processor, and texts again.
export async function answer(tokenizer, texts) {
  const cases = [];
  for (const bytes of texts) {
    // Bytes that are not UTF-8 become U+FFFD, in the same places as Rust's from_utf8_lossy puts it.
    const text = bytes.toString('utf8');
    const ids = (await tokenizer.encode(text, null, { addSpecialTokens: true })).getIds();
    const plain = (await tokenizer.encode(text, null, { addSpecialTokens: false })).getIds();
    cases.push({
      text: bytes.toString('base64'),
      ids,
      plain_ids: plain,
      decoded: await tokenizer.decode(ids, false),
      decoded_skip: await tokenizer.decode(ids, true),
    });
  }
  return cases;
}

export async function decodeAll(tokenizer, lists) {
  const cases = [];
  for (const ids of lists) {
    cases.push({ ids, decoded: await tokenizer.decode(ids, false), decoded_skip: await tokenizer.decode(ids, true) });
  }
  return cases;
}

// A tokenizer.decode of a run of byte tokens that is not UTF-8 replaces every byte of the run, also those that make
// characters; a stream cannot do that, so random lists leave byte tokens out.
export const isByteToken = (text) => /^<0x[0-9A-Fa-f]{2}>$/.test(text ?? '');
