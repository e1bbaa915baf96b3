/**
 * Loads the built app with this version of Node.js, as a worker of Azure Functions does. A bundle that imports something that
 * this version lacks can't be linked, and to the Functions host the app then has no functions. CI runs it with every major
 * version that package.json allows.
 */
import path from "node:path";
import { pathToFileURL } from "node:url";
import { commandLine } from "./command-line.ts";

const HELP = `node infra/build/load-entry.ts [FOLDER]

Loads dist/main.mjs of a built app with this version of Node.js. Exits with 1 if it can't be loaded.

  FOLDER   folder with the app's dist/; default: this project`;

const { positionals } = commandLine(HELP, { allowPositionals: true, options: {} });
const folder = path.resolve(positionals[0] ?? path.join(import.meta.dirname, "../.."));

// The settings without which the app does not start. Loading it calls nothing.
process.env.AzureWebJobsStorage = "UseDevelopmentStorage=true";
process.env.JWT_SIGNING_KEYS = `load:${Buffer.alloc(32, 1).toString("base64")}`;
// Outside of the Functions host, the platform's library warns of every function that it does not register.
let registered = 0;
console.warn = (message: string) => {
  if (message.includes("Skipping call to register function")) registered += 1;
};
await import(pathToFileURL(path.join(folder, "dist/main.mjs")).href);
if (registered === 0) throw new Error("The app registers no function.");
console.log(`Node.js ${process.version} loads the app, which has ${registered} functions.`);
