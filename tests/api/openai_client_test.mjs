// The unmodified `openai` package from npm against a running server.
//
// usage: [QUIRE_API_KEY=KEY] node openai_client_test.mjs NODE_MODULES BASE_URL   (status 77: the package is not there)
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import path from 'node:path';

const [modules, base] = process.argv.slice(2);
const apiKey = process.env.QUIRE_API_KEY ?? 'none';
const entry = path.join(modules, 'openai', 'index.mjs');
if (!existsSync(entry)) {
  console.log(`skipped: ${entry} is not there; run npm ci in tests/npm`);
  process.exit(77);
}
const { default: OpenAI } = await import(pathToFileURL(entry));
const client = new OpenAI({ baseURL: `${base}/v1`, apiKey, maxRetries: 0 });

const tests = {};
let model;
const messages = [{ role: 'user', content: 'Tell me about the sea.' }];

tests['models are listed and found'] = async () => {
  const list = await client.models.list();
  assert.equal(list.data[0].id, model);
  assert.equal((await client.models.retrieve(model)).object, 'model');
};

tests['chat'] = async () => {
  const answer = await client.chat.completions.create({ model, messages, max_tokens: 16, temperature: 0 });
  assert.equal(answer.object, 'chat.completion');
  assert.equal(typeof answer.choices[0].message.content, 'string');
  assert.ok(['stop', 'length'].includes(answer.choices[0].finish_reason));
  assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
  assert.ok(answer._request_id);
};

tests['chat stream'] = async () => {
  const parameters = { model, messages, max_tokens: 16, temperature: 0 };
  const whole = await client.chat.completions.create(parameters);
  const stream = await client.chat.completions.create({
    ...parameters,
    stream: true,
    stream_options: { include_usage: true },
  });
  let text = '';
  let usage = null;
  let finish = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? '';
    finish = chunk.choices[0]?.finish_reason ?? finish;
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(finish, whole.choices[0].finish_reason);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
};

tests['the stream helper puts the message together'] = async () => {
  const runner = client.chat.completions.stream({
    model, messages, max_tokens: 16, n: 2, logprobs: true, top_logprobs: 2, temperature: 0,
  });
  const final = await runner.finalChatCompletion();
  assert.equal(final.choices.length, 2);
  for (const choice of final.choices) {
    assert.equal(choice.message.role, 'assistant');
    assert.ok(choice.logprobs.content.length > 0);
    assert.equal(choice.logprobs.content[0].top_logprobs.length, 2);
  }
};

tests['a stream can be left in the middle'] = async () => {
  const stream = await client.chat.completions.create({ model, messages, max_tokens: 64, stream: true });
  for await (const chunk of stream) {
    assert.equal(chunk.object, 'chat.completion.chunk');
    break; // aborts the request
  }
  await client.chat.completions.create({ model, messages, max_tokens: 2 });
};

tests['completions'] = async () => {
  const answer = await client.completions.create({
    model, prompt: ['One', 'Two'], max_tokens: 4, n: 2, logprobs: 2, echo: true,
  });
  assert.equal(answer.choices.length, 4);
  assert.ok(answer.choices[0].text.startsWith('One'));
  assert.ok(answer.choices[3].text.startsWith('Two'));
  const { tokens, token_logprobs: logprobs, text_offset: offsets } = answer.choices[0].logprobs;
  assert.equal(tokens.length, logprobs.length);
  assert.equal(tokens.length, offsets.length);
};

tests['completions stream'] = async () => {
  const parameters = { model, prompt: 'Once upon a time', max_tokens: 8, temperature: 0 };
  const whole = await client.completions.create(parameters);
  let text = '';
  for await (const chunk of await client.completions.create({ ...parameters, stream: true })) {
    text += chunk.choices[0]?.text ?? '';
  }
  assert.equal(text, whole.choices[0].text);
};

tests['token ids as prompt'] = async () => {
  const answer = await client.completions.create({ model, prompt: [5, 6, 7], max_tokens: 2 });
  assert.equal(answer.usage.prompt_tokens, 3);
};

tests['wrong values become BadRequestError with the field'] = async () => {
  await assert.rejects(client.chat.completions.create({ model, messages, temperature: -1 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, 'temperature');
    assert.equal(error.type, 'BadRequestError');
    return true;
  });
  await assert.rejects(
    client.chat.completions.create({ model, messages, max_tokens: 10 ** 9 }),
    (error) => error instanceof OpenAI.BadRequestError && error.code === 'context_length_exceeded',
  );
  await assert.rejects(
    client.chat.completions.create({ model, messages, temperature: -1, stream: true }), OpenAI.BadRequestError);
};

tests['unknown models become NotFoundError'] = async () => {
  await assert.rejects(
    client.chat.completions.create({ model: 'no-such-model', messages }), OpenAI.NotFoundError);
  await assert.rejects(client.models.retrieve('no-such-model'), OpenAI.NotFoundError);
};

tests['a wrong key becomes AuthenticationError'] = async () => {
  if (apiKey === 'none') return;
  const stranger = new OpenAI({ baseURL: `${base}/v1`, apiKey: `${apiKey}x`, maxRetries: 0 });
  await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
};

tests['twenty requests at once'] = async () => {
  const answers = await Promise.all(Array.from({ length: 20 }, () =>
    client.chat.completions.create({ model, messages, max_tokens: 8, temperature: 0 })));
  for (const answer of answers) {
    assert.equal(answer.choices[0].message.content, answers[0].choices[0].message.content);
  }
};

model = (await client.models.list()).data[0].id;
let failed = 0;
for (const [name, run] of Object.entries(tests)) {
  try {
    await run();
    console.log(`ok      ${name}`);
  } catch (error) {
    ++failed;
    console.log(`FAILED  ${name}\n${error.stack}`);
  }
}
process.exit(failed === 0 ? 0 : 1);
