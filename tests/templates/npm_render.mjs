// Renders requests as render_template does, with the npm package @huggingface/jinja: a second opinion on jinja2.
// Ends with 77 when the package is not installed in tests/npm.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(new URL("../npm/package.json", import.meta.url));
let Template;
try {
  ({ Template } = require("@huggingface/jinja"));
} catch {
  process.exit(77);
}
const compiled = new Map();
for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  let reply;
  try {
    const request = JSON.parse(line);
    if (!compiled.has(request.template)) compiled.set(request.template, new Template(request.template));
    const text = compiled.get(request.template).render({
      messages: request.messages ?? [],
      tools: request.tools ?? null,
      documents: null,
      add_generation_prompt: request.add_generation_prompt ?? true,
      bos_token: request.bos_token ?? "",
      eos_token: request.eos_token ?? "",
      ...request.kwargs,
    });
    reply = { text };
  } catch (error) {
    reply = { error: String(error.message ?? error) };
  }
  console.log(JSON.stringify(reply));
}
