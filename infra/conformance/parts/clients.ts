import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { stripVTControlCharacters } from "node:util";
import { pythonPackages } from "../../../test/support/python.ts";
import { ADMIN, Service } from "../../../test/support/service.ts";
import { CACHE, GO, ROOT } from "../cache.ts";
import { observe } from "../case.ts";
import type { Part } from "../part.ts";
import type { ProgramId } from "../programs.ts";

// Clients that are generated from /openapi.json as docs/clients.md says. Each compiles, and does the same ten tasks: the
// programs in clients/ print a line for each task, in the form "<task>: <result>".

const SOURCES = path.join(import.meta.dirname, "../clients");
const DESCRIPTION = "openapi.json";

/** A command with its arguments, and variables of its environment. */
interface Command {
  program: string;
  args: string[];
  env?: Record<string, string>;
}

/** A generator. The commands run in a copy of its folder of clients/, in which openapi.json is the API description. */
interface Generator {
  program: ProgramId;
  language: string;
  folder: string;
  /** Generates and compiles the client. */
  build: Command[];
  /** Does the tasks. */
  run: Command;
}

const bin = (workspace: string, name: string): string => path.join(ROOT, workspace, "node_modules/.bin", name);
const MAVEN = ["-B", "-q", "-ntp", `-Dmaven.repo.local=${path.join(CACHE, "maven")}`, `-Dspec=${DESCRIPTION}`];

function generators(): Generator[] {
  const python = { PYTHONPATH: pythonPackages() };
  const generatePython = ["-m", "openapi_python_client", "generate", "--path", DESCRIPTION, "--config", "client.yaml"];
  return [
    {
      program: "openapiTypescript",
      language: "TypeScript",
      folder: "typescript",
      build: [
        {
          program: bin("functions/web", "openapi-typescript"),
          args: [DESCRIPTION, "--default-non-nullable=false", "--output", "schema.d.ts"],
        },
        { program: bin("", "tsc"), args: ["-p", "."] },
      ],
      run: { program: process.execPath, args: ["tasks.ts"] },
    },
    {
      program: "openapiPythonClient",
      language: "Python",
      folder: "python",
      build: [
        {
          program: "python3",
          args: [...generatePython, "--meta", "none", "--output-path", "lifecycle"],
          env: python,
        },
        { program: "python3", args: ["-m", "compileall", "-q", "lifecycle"] },
      ],
      run: { program: "python3", args: ["tasks.py"], env: python },
    },
    {
      program: "oapiCodegen",
      language: "Go",
      folder: "go",
      build: [
        {
          program: "go",
          args: [
            "tool",
            "oapi-codegen",
            "-generate",
            "types,client",
            "-package",
            "api",
            "-o",
            "api/api.gen.go",
            DESCRIPTION,
          ],
          env: GO,
        },
        { program: "go", args: ["build", "-o", "tasks", "."], env: GO },
      ],
      run: { program: "./tasks", args: [] },
    },
    {
      program: "openapiGenerator",
      language: "Java",
      folder: "java",
      build: [{ program: "mvn", args: [...MAVEN, "compile"] }],
      run: { program: "mvn", args: [...MAVEN, "-Dopenapi.generator.skip=true", "exec:java"] },
    },
  ];
}

export const part: Part = {
  name: "clients",
  description: "clients generated from /openapi.json compile and do ten tasks each",
  programs: ["openapiTypescript", "openapiPythonClient", "oapiCodegen", "openapiGenerator"],
  needs: ["python", "go", "java", "maven"],
  limits: [
    "openapi-python-client knows neither `application/pdf` nor `application/samlmetadata+xml`. Its configuration in docs/clients.md names them.",
    "openapi-python-client generates a module for the sign-in that can't be imported, because that operation accepts a form in addition to JSON. The task sends the request with the generated models.",
    "OpenAPI Generator reads an answer with several possible schemas, such as that of the sign-in, as the first of them, unless its mapper rejects unknown members.",
    "The library `native` of OpenAPI Generator reads a text as JSON. The task fetches the CSV file with its HTTP client.",
    "oapi-codegen removes named schemas that only webhooks use, so the description has webhooks with schemas without names.",
  ],
  async *run() {
    const service = await Service.start({ company: "small" });
    // In the project's folder, so that Node and the compiler find the packages of the TypeScript client.
    mkdirSync(path.join(ROOT, ".local"), { recursive: true });
    const work = mkdtempSync(path.join(ROOT, ".local/conformance-clients-"));
    try {
      await service.scan();
      const { text } = await service.call("GET", `/${DESCRIPTION}`);
      const results = await expectedResults(service);
      for (const generator of generators()) {
        const { program, language, folder, build } = generator;
        const cwd = path.join(work, folder);
        cpSync(path.join(SOURCES, folder), cwd, { recursive: true });
        mkdirSync(path.join(cwd, "api"), { recursive: true });
        writeFileSync(path.join(cwd, DESCRIPTION), text);
        const env = { SERVICE: service.url, CLIENT_USERNAME: ADMIN.username, CLIENT_PASSWORD: ADMIN.password };
        const run = (command: Command) => output({ ...command, env: { ...env, ...command.env } }, cwd);
        yield {
          program,
          ...(await observe("is generated and compiles", "no warning, no error", async () => {
            let warnings = "";
            for (const command of build) warnings += await run(command);
            // Removes the progress messages of the generators, the downloads of Go and the advertisement of OpenAPI Generator.
            const silent = warnings.replace(/^(#.*|Generating lifecycle|go: downloading .*|✨.*|🚀.*)$/gmu, "").trim();
            return silent || "no warning, no error";
          })),
        };
        const lines = await run(generator.run).catch((error: unknown) => String((error as Error).cause));
        for (const [task, expected] of Object.entries(results))
          yield {
            program,
            ...(await observe(task, expected.replace("<language>", language), async () => resultIn(lines, task))),
          };
      }
    } finally {
      rmSync(work, { recursive: true, force: true });
      await service.stop();
    }
  },
};

/**
 * Returns what a program printed for a task.
 * @throws {Error} with the end of its output, if it did not print the task
 */
function resultIn(lines: string, task: string): string {
  const line = lines.split("\n").find((one) => one.startsWith(`${task}: `));
  if (line === undefined) throw new Error(`The program did not do it. ${lines.slice(-300)}`);
  return line.slice(task.length + 2).trim();
}

/** Returns the expected result of each task, from the service's own answers. The keys are the names that the programs print. */
async function expectedResults(service: Service): Promise<Record<string, string>> {
  const assets = await service.listAll("/api/assets/discovery/assets");
  const secrets = assets.filter(({ type, enabled, outOfScope }) => type === "secret" && enabled && !outOfScope);
  const { body: score } = await service.admin("GET", "/compliance/score?history=30");
  const [first] = assets;
  return {
    "sign in": `${ADMIN.username} admin`,
    "read a list by pages": `${assets.length} assets, ${Math.ceil(assets.length / 2)} pages`,
    "filter a list": `${secrets.length} enabled secrets`,
    "read one asset and the score": `${first.id} ${first.status} ${score.history.length}`,
    "create a rule": "201 Conformance <language> false",
    // A change to 14 days, then one with the outdated ETag.
    "change it with an ETag": "14 412 preconditionFailed",
    "delete it": "true 404 notFound",
    "preview a change": "200 200",
    // The lines of the CSV file with its heading, and the start of the PDF file.
    "export files": `${assets.length + 1} %PDF`,
    "handle errors": "notFound invalidRequest query.limit",
  };
}

/**
 * Runs a command.
 * @returns its standard output and standard error
 *
 * @throws {Error} with the end of both if it fails, and with all of both as its `cause`
 */
const output = ({ program, args, env = {} }: Command, cwd: string): Promise<string> =>
  new Promise((resolve, reject) => {
    const options = { cwd, env: { ...process.env, ...env }, maxBuffer: 10_000_000 };
    execFile(program, args, options, (error, out, err) => {
      // Maven starts its output with a control sequence.
      const text = stripVTControlCharacters(out + err);
      if (error) reject(new Error(`${path.basename(program)} failed: ${text.trim().slice(-350)}`, { cause: text }));
      else resolve(text);
    });
  });
