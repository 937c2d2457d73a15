// Writes the chat templates of the npm package @huggingface/ollama-utils to a folder, one file each.
// usage: node npm_templates.mjs FOLDER
// Ends with 77 when the package is not installed in tests/npm.
import { createRequire } from "node:module";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const require = createRequire(new URL("../npm/package.json", import.meta.url));
let program;
try {
  program = require.resolve("@huggingface/ollama-utils");
} catch {
  console.log("skipped: npm package @huggingface/ollama-utils is not installed in tests/npm");
  process.exit(77);
}
// The table is not among the package's exports, so that its file is run here with one more line.
const run = new Function("module", "exports", "require", `${readFileSync(program, "utf8")}
return OLLAMA_CHAT_TEMPLATE_MAPPING;`);
const module = { exports: {} };
const mapping = run(module, module.exports, require);
const folder = process.argv[2];
mkdirSync(folder, { recursive: true });
const templates = new Set(mapping.map((entry) => entry.gguf).filter((gguf) => gguf));
[...templates].forEach((gguf, number) => {
  writeFileSync(join(folder, `${String(number).padStart(3, "0")}.jinja`), gguf);
});
console.log(`${templates.size} templates`);
