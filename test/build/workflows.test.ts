/** Checks the GitHub workflows: their triggers, their permissions, and the commands that they run. */
import { accessSync, constants, existsSync, globSync, readFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";

interface Step {
  uses?: string;
  run?: string;
  if?: string;
  with?: Record<string, unknown>;
}
interface Job {
  uses?: string;
  permissions?: Record<string, string>;
  needs?: string | string[];
  steps?: Step[];
  "timeout-minutes"?: number;
  strategy?: { matrix: Record<string, number[]> };
}
interface Workflow {
  on: Record<string, unknown>;
  permissions?: unknown;
  jobs: Record<string, Job>;
}

const root = path.resolve(import.meta.dirname, "../..");
const read = (file: string) => readFileSync(path.join(root, file), "utf8");
const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };
const files = globSync(".github/workflows/*.yml", { cwd: root });
const workflows = new Map(files.map((file) => [path.basename(file, ".yml"), parse(read(file)) as Workflow]));
const jobs = [...workflows].flatMap(([workflow, { jobs }]) =>
  Object.entries(jobs).map(([name, job]) => [`${workflow}: ${name}`, job] as const),
);
const stepsOf = (job: Job): Step[] => job.steps ?? [];
const commandsOf = (workflow: string): string =>
  Object.values(workflows.get(workflow)!.jobs)
    .flatMap(stepsOf)
    .map(({ run }) => run ?? "")
    .join("\n");

/** The jobs with write permissions. Every other job can only read the repository. */
const WRITING_JOBS: Record<string, Record<string, string>> = {
  "release: attest": { attestations: "write", contents: "read", "id-token": "write" },
  "release: publish": { contents: "write" },
};

test("there are three workflows", () => {
  expect([...workflows.keys()].sort()).toEqual(["ci", "conformance", "release"]);
});

test("no workflow runs with the repository's permissions for a pull request of a fork", () => {
  for (const [name, { on, permissions }] of workflows) {
    expect(Object.keys(on), name).not.toContain("pull_request_target");
    expect(Object.keys(on), name).not.toContain("workflow_run");
    expect(permissions, name).toEqual({});
  }
});

describe.each(jobs)("%s", (name, job) => {
  test("has only its listed permissions, and a time limit of at most an hour", () => {
    expect(job.permissions).toEqual(WRITING_JOBS[name] ?? { contents: "read" });
    // A called workflow has its own time limits.
    if (!job.uses) expect(job["timeout-minutes"]).toBeLessThanOrEqual(60);
  });

  test("runs no code of the repository with write permissions", () => {
    if (!(name in WRITING_JOBS)) return;
    for (const { uses = "", run = "" } of stepsOf(job)) {
      expect(uses).not.toContain("actions/checkout");
      expect(run).not.toMatch(/\b(npm|npx|node)\b/);
    }
  });

  test("pins every action to a commit", () => {
    for (const { uses } of [job, ...stepsOf(job)]) {
      if (uses === undefined) continue;
      if (uses.startsWith("./")) expect(existsSync(path.join(root, uses)), uses).toBe(true);
      else expect(uses).toMatch(/^[\w-]+\/[\w-]+@[0-9a-f]{40}$/);
    }
  });

  test("does not store the checkout's token, and inserts no expression into a shell command", () => {
    for (const { uses = "", run = "", with: inputs } of stepsOf(job)) {
      if (uses.startsWith("actions/checkout@")) expect(inputs).toMatchObject({ "persist-credentials": false });
      expect(run).not.toContain("${{");
    }
  });
});

/** Matches `uses: actions/checkout@<commit> # v4.2.2`. Actions of the repository itself start with a dot and don't match. */
const PINNED_ACTION = /uses: ([^./@\s][^@\s]*)@(\S+)(.*)/g;

test.each(files)(
  "%s names the version of every action in a comment, and all workflows use the same version",
  (file) => {
    const pinsOfAllFiles = files.flatMap((workflow) => [...read(workflow).matchAll(PINNED_ACTION)]);
    const pins = new Map(pinsOfAllFiles.map(([, action, commit, comment]) => [action, `${commit}${comment}`]));
    for (const [, action, commit, comment] of read(file).matchAll(PINNED_ACTION)) {
      expect(comment, action).toMatch(/^ # v\d+\.\d+\.\d+$/);
      expect(`${commit}${comment}`, action).toBe(pins.get(action));
    }
  },
);

test("every command of the project that the workflows call exists", () => {
  const commands = [...workflows.keys()].map(commandsOf).join("\n");
  for (const [, script] of commands.matchAll(/npm run ([\w:-]+)/g)) expect(scripts).toHaveProperty([script!]);
  for (const [named] of commands.matchAll(/\binfra\/[\w./-]*\w/g))
    expect(existsSync(path.join(root, named))).toBe(true);
  accessSync(path.join(root, ".ci/run"), constants.X_OK);
});

test("the workflow ci runs .ci/run, and checks every Bicep and Terraform file", () => {
  const commands = commandsOf("ci");
  expect(commands).toMatch(/^\.ci\/run$/m);
  // The workflow names the Bicep files that no other Bicep file uses as a module. The compiler checks the modules with them.
  const bicep = globSync("infra/azure/**/*.bicep", { cwd: root });
  const moduleFiles = bicep.flatMap((file) =>
    [...read(file).matchAll(/^module \w+ '([^']+)'/gm)].map(([, target]) => path.join(path.dirname(file), target!)),
  );
  for (const file of bicep.filter((bicepFile) => !moduleFiles.includes(bicepFile))) expect(commands).toContain(file);
  for (const folder of terraformFolders()) expect(covers(commands, folder), folder).toBe(true);
  expect(commands).toContain("terraform fmt -check -recursive");
  expect(commands).toMatch(/checkov==[\d.]+ --config-file (\S+)/);
  expect(existsSync(path.join(root, ".checkov.yaml"))).toBe(true);
});

test("the workflow ci loads the built app with every major version of Node.js that package.json and the templates allow", () => {
  const job = workflows.get("ci")!.jobs["built-entry"]!;
  const versions = job.strategy!.matrix["node-version"]!;
  const { engines } = JSON.parse(read("package.json")) as { engines: { node: string } };
  expect(versions).toEqual([...engines.node.matchAll(/(\d+)\.\d+\.\d+/g)].map(([, major]) => Number(major)));
  const allowed = /@allowed\(\[(.*)\]\)\nparam nodeVersion /.exec(read("infra/azure/main.bicep"))![1]!;
  expect(versions.map((version) => `'${version}'`).join(", ")).toBe(allowed);
  const setup = stepsOf(job).find(({ uses }) => uses?.startsWith("actions/setup-node@"))!;
  expect(setup.with).toMatchObject({ "node-version": expect.stringContaining("matrix.node-version") });
  const commands = stepsOf(job).flatMap(({ run }) => run ?? []);
  expect(commands.slice(-2)).toEqual(["npm run build", "node infra/build/load-entry.ts"]);
});

test("a release is built by `npm run package`, and is published after CI and the attestation have passed", () => {
  const { ci, package: packageJob, attest, publish } = workflows.get("release")!.jobs;
  expect(ci!.uses).toBe("./.github/workflows/ci.yml");
  expect(stepsOf(packageJob!).map(({ run }) => run)).toContain('npm run package -- "$RUNNER_TEMP/release"');
  expect(attest!.needs).toEqual(["ci", "package"]);
  expect(publish!.needs).toBe("attest");
  const attestSteps = stepsOf(attest!).filter(({ uses }) => uses?.startsWith("actions/attest@"));
  expect(attestSteps.map((step) => step.with)).toEqual([
    { "subject-path": "release/*" },
    { "subject-path": "release/credential-lifecycle-[0-9]*.zip", "sbom-path": "release/sbom.cdx.json" },
  ]);
});

test("a release compiles the templates that are deployed on their own, and publishes the one that its notes link", () => {
  const { package: packageJob, publish } = workflows.get("release")!.jobs;
  const [compile] = stepsOf(packageJob!).filter(({ run }) => run?.includes("bicep build"));
  const templates = /for template in ([\s\S]*?);/.exec(compile!.run!)![1]!.split(/[\s\\]+/);
  const moduleFiles = globSync("infra/azure/**/*.bicep", { cwd: root }).flatMap((file) =>
    [...read(file).matchAll(/^module \w+ '([^']+)'/gm)].map(([, target]) => path.join(path.dirname(file), target!)),
  );
  // Those that no other template deploys, and those of main.bicep that are also deployed to further scopes.
  const alone = globSync("infra/azure/**/*.bicep", { cwd: root }).filter(
    (file) =>
      !moduleFiles.includes(file) ||
      /infra\/azure\/(?!modules)\w[\w-]*\/(subscription|resource-group)\.bicep$/.test(file),
  );
  expect(templates.map((template) => `infra/azure/${template}.bicep`).sort()).toEqual(alone.sort());
  const publishing = stepsOf(publish!)
    .map(({ run }) => run ?? "")
    .join("\n");
  expect(publishing).toContain("contents/$GITHUB_REF_NAME/azuredeploy.json");
  expect(publishing).toContain("--notes-file release-notes.md");
});

test("the workflow ci checks the workflows for mistakes and weaknesses", () => {
  expect(commandsOf("ci")).toMatch(/actionlint\/cmd\/actionlint@v[\d.]+$/m);
  expect(commandsOf("ci")).toMatch(/zizmor==[\d.]+ --offline --min-severity medium \.github\/workflows/);
});

test("the programs of other people are run every week, and the resulting page is kept", () => {
  const { on, jobs } = workflows.get("conformance")!;
  expect(on.schedule).toEqual([{ cron: expect.stringMatching(/^\d+ \d+ \* \* \d$/) }]);
  expect(commandsOf("conformance")).toMatch(/^npm run conformance$/m);
  const upload = stepsOf(jobs["foreign-programs"]!).at(-1)!;
  expect(upload).toMatchObject({ if: "always()", with: { path: "docs/works-with.md" } });
});

test("Dependabot monitors the versions of npm packages, actions and Terraform providers", () => {
  const { updates } = parse(read(".github/dependabot.yml")) as {
    updates: { "package-ecosystem": string; directory?: string; directories?: string[] }[];
  };
  expect(updates.map((update) => update["package-ecosystem"])).toEqual(["npm", "github-actions", "terraform"]);
  const monitoredFolders = updates[2]!.directories!.join(" ").replaceAll(" /", " ").slice(1);
  for (const folder of terraformFolders()) expect(covers(monitoredFolders, folder), folder).toBe(true);
});

test("issue forms have a name, a description, and fields with unique ids", () => {
  for (const file of globSync(".github/ISSUE_TEMPLATE/*.yml", { cwd: root }).filter(
    (one) => !one.endsWith("config.yml"),
  )) {
    const form = parse(read(file)) as { name: string; description: string; body: { type: string; id?: string }[] };
    expect(form.name && form.description, file).toBeTruthy();
    const ids = form.body.filter(({ type }) => type !== "markdown").map(({ id }) => id);
    expect(new Set(ids).size, file).toBe(ids.length);
    expect(ids, file).not.toContain(undefined);
  }
});

/** Returns the folders that contain a Terraform configuration. */
function terraformFolders(): string[] {
  const folders = globSync("infra/terraform/**/*.tf", { cwd: root }).map((file) => path.dirname(file));
  return [...new Set(folders)].sort();
}

/** Returns whether a text names the folder, or its parent with the pattern `/*`. */
const covers = (text: string, folder: string): boolean => {
  const words = text.split(/[\s;]+/);
  return words.includes(folder) || words.includes(`${path.dirname(folder)}/*`);
};
