import { spawnSync } from "node:child_process";
import { createPublicKey } from "node:crypto";
import { globSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { Ajv } from "ajv";
import addFormats from "ajv-formats";
import { unzipSync } from "fflate";
import type { RunningHost } from "functions-host/test/run-host.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { BuiltApp } from "../../infra/build/build.ts";
import { buildRelease, type Release } from "../../infra/build/package.ts";
import { DEVELOPMENT_TEXTS, problemsOf } from "../../infra/build/package-check.ts";
import { releaseNotes } from "../../infra/build/release-notes.ts";
import { licence, licensePrivateKey } from "../support/licence.ts";
import { ADMIN, Service } from "../support/service.ts";
import { TEST_APP } from "../support/test-app.ts";

const root = path.resolve(import.meta.dirname, "../..");
const folder = mkdtempSync(path.join(tmpdir(), "release-test-"));

/*
 * Tests of `npm run package`, which builds the release: the zip file that is deployed. The tests build it twice, run the
 * unpacked release next to a local build, and check the contents of the zip.
 */

let release: Release;
let secondRelease: Release;
/** The local build of this test run. */
let service: Service;
/** A host that runs the release, unpacked outside of the project. */
let releaseHost: RunningHost;
beforeAll(async () => {
  // The license is signed with the test key, which only local builds accept.
  const starting = licence().then((LICENSE_KEY) => Service.start({ env: { LICENSE_KEY } }));
  release = await buildRelease(path.join(folder, "one"));
  secondRelease = await buildRelease(path.join(folder, "quite/another"));
  const app = path.join(folder, "app");
  for (const [file, data] of Object.entries(unzipSync(readFileSync(release.zip)))) {
    mkdirSync(path.dirname(path.join(app, file)), { recursive: true });
    writeFileSync(path.join(app, file), data);
  }
  service = await starting;
  releaseHost = await service.addHost({}, ["--app", app]);
});
afterAll(async () => {
  await service?.stop();
  rmSync(folder, { recursive: true, force: true });
});

const textOf = (file: string): string => Buffer.from(release.files.get(file)!).toString("utf8");

const MODULE = `credential-lifecycle-terraform-${projectVersion()}.zip`;
/** The version, which package.json alone states. */
function projectVersion(): string {
  return JSON.parse(readFileSync(path.join(root, "package.json"), "utf8")).version;
}

test("two builds are identical, byte for byte, in every file", () => {
  const [one, other] = [path.dirname(release.zip), path.dirname(secondRelease.zip)];
  expect(readdirSync(one).sort()).toEqual([
    "THIRD-PARTY-LICENSES.txt",
    path.basename(release.zip),
    MODULE,
    "first-password.mjs",
    "make-secrets.mjs",
    "sbom.cdx.json",
  ]);
  expect(readdirSync(other).sort()).toEqual(readdirSync(one).sort());
  for (const file of readdirSync(one))
    expect([file, readFileSync(path.join(other, file)).equals(readFileSync(path.join(one, file)))]).toEqual([
      file,
      true,
    ]);
  expect(secondRelease.sha256).toBe(release.sha256);
});

test("the zip, its bill of materials, the health and the templates name one version, and the commit", async () => {
  const version = projectVersion();
  const { commit } = release.source;
  const head = spawnSync("git", ["rev-parse", "HEAD"], { cwd: root, encoding: "utf8" }).stdout.trim();
  const isClean = spawnSync("git", ["--no-optional-locks", "status", "--porcelain"], { cwd: root }).stdout.length === 0;
  expect(commit).toBe(isClean ? head : null);
  const described = JSON.parse(textOf("package.json"));
  expect([described.version, described.gitHead ?? null]).toEqual([version, commit]);
  const { component } = JSON.parse(textOf("sbom.cdx.json")).metadata;
  expect([component.version, component.properties?.[0].value ?? null]).toEqual([version, commit]);
  const { body } = await service.admin("GET", `${releaseHost.url}/health?deep=true`);
  expect([body.version, body.commit]).toEqual([version, commit]);
  const module = unzipSync(readFileSync(path.join(path.dirname(release.zip), MODULE)));
  expect(JSON.parse(Buffer.from(module["package.json"]!).toString("utf8")).version).toBe(version);
  for (const [file, reference] of [
    ["infra/azure/main.bicep", "loadJsonContent('../../package.json', '$.version')"],
    ["infra/terraform/outputs.tf", '/../../package.json")).version'],
  ] as const)
    expect(readFileSync(path.join(root, file), "utf8")).toContain(reference);
});

test("the archive of the Terraform module contains every file that its modules call or read, and no tests", () => {
  const module = unzipSync(readFileSync(path.join(path.dirname(release.zip), MODULE)));
  const files = Object.keys(module);
  expect(files.filter((file) => /tftest|\.terraform/.test(file))).toEqual([]);
  expect(files).toEqual(
    expect.arrayContaining(["LICENSE", "infra/terraform/main.tf", "infra/terraform/watch/main.tf"]),
  );
  const missing = files
    .filter((file) => file.endsWith(".tf"))
    .flatMap((file) => {
      const text = Buffer.from(module[file]!).toString("utf8");
      const folder = path.posix.dirname(file);
      const read = [...text.matchAll(/\$\{path\.module\}\/([^"$]+)"/g)].map(([, name]) =>
        path.posix.join(folder, name!),
      );
      const called = [...text.matchAll(/source\s+= "(\.[^"]+)"/g)].map(([, name]) =>
        path.posix.join(folder, name!, "main.tf"),
      );
      return [...read, ...called].filter((name) => !files.includes(name));
    });
  expect(missing).toEqual([]);
});

test.each(["make-secrets", "first-password"])("%s.mjs runs with Node alone, in a folder without packages", (name) => {
  const folderWithoutPackages = mkdtempSync(path.join(tmpdir(), "command-"));
  try {
    const file = path.join(folderWithoutPackages, `${name}.mjs`);
    writeFileSync(file, readFileSync(path.join(path.dirname(release.zip), `${name}.mjs`)));
    const help = spawnSync(process.execPath, [file, "--help"], { cwd: folderWithoutPackages, encoding: "utf8" });
    expect([help.status, help.stderr]).toEqual([0, ""]);
    const vault = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.KeyVault/vaults/kv";
    // Loads its libraries, and then finds no sign-in.
    const run = spawnSync(process.execPath, [file], {
      cwd: folderWithoutPackages,
      encoding: "utf8",
      input: "a password of my own",
      env: {
        SERVICE_URL: "https://localhost",
        SERVICE_KEY_VAULT_ID: vault,
        SERVICE_FUNCTION_APP_ID: "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Web/sites/func",
      },
    });
    expect([run.status, run.stderr]).toEqual([1, expect.stringContaining("CredentialUnavailableError")]);
  } finally {
    rmSync(folderWithoutPackages, { recursive: true });
  }
});

test("the check that loads the built app passes for this build, and fails for one that Node.js can't link", () => {
  const load = (app: string) => {
    const file = path.join(root, "infra/build/load-entry.ts");
    return spawnSync(process.execPath, [file, app], { cwd: folder, encoding: "utf8" });
  };
  const loaded = load(TEST_APP);
  expect([loaded.status, loaded.stderr, loaded.stdout]).toEqual([
    0,
    "",
    expect.stringMatching(/^Node\.js v\d+\S+ loads the app, which has \d{3} functions\.\n$/),
  ]);
  for (const [name, source, message] of [
    ["unlinkable", 'import { aNameOfAFutureVersion } from "node:module";', "does not provide an export named"],
    ["empty", "export {};", "The app registers no function."],
  ] as const) {
    mkdirSync(path.join(folder, name, "dist"), { recursive: true });
    writeFileSync(path.join(folder, name, "dist/main.mjs"), source);
    const failed = load(path.join(folder, name));
    expect([failed.status, failed.stderr]).toEqual([1, expect.stringContaining(message)]);
  }
});

test("the notes of a release have the changes of its version and a button that opens its template in the portal", () => {
  const changelog = readFileSync(path.join(root, "CHANGELOG.md"), "utf8");
  const notes = releaseNotes("owner/name", projectVersion(), changelog);
  const address = /portal\.azure\.com\/#create\/Microsoft\.Template\/uri\/([^)]+)\)/.exec(notes)![1]!;
  expect(decodeURIComponent(address)).toBe(
    `https://raw.githubusercontent.com/owner/name/templates/v${projectVersion()}/azuredeploy.json`,
  );
  expect(notes).toContain(MODULE);
  expect(notes).toContain(
    changelog
      .split(/^## .*$/m)[1]!
      .trim()
      .split("\n")[0],
  );
  expect(() => releaseNotes("owner/name", "9.9.9", changelog)).toThrow("no section of version 9.9.9");
});

test("the unpacked release answers like a local build, but does not accept the license of tests", async () => {
  const get = async (url: string, headers = {}) => await fetch(url, { headers });
  const [health, described, page] = await Promise.all(
    ["/health", "/openapi.json", "/docs"].map((each) => get(releaseHost.url + each)),
  );
  expect([health!.status, page!.status]).toEqual([200, 200]);
  expect(await described!.text()).toBe(await (await get(`${service.url}/openapi.json`)).text());

  const signedIn = await fetch(`${releaseHost.url}/auth/login`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(ADMIN),
  });
  expect(signedIn.status).toBe(200);
  const { access_token } = (await signedIn.json()) as { access_token: string };
  const tierOn = async ({ url }: { url: string }) => {
    const answer = await get(`${url}/system/license/status`, { Authorization: `Bearer ${access_token}` });
    return ((await answer.json()) as { tier: string }).tier;
  };
  // Both hosts have the same license, but the release does not accept the test key.
  expect([await tierOn(service), await tierOn(releaseHost)]).toEqual(["pro", "core"]);
});

test("the release contains the app, its pages, its font, and the list of its contents", () => {
  const kinds = Object.groupBy(
    [...release.files.keys()].filter((file) => !/^dist\/[\w.-]+\.mjs$/.test(file)),
    (file) => path.posix.dirname(file),
  );
  expect(kinds["."]!.sort()).toEqual([
    "CHANGELOG.md",
    "LICENSE",
    "THIRD-PARTY-LICENSES.txt",
    "host.json",
    "package.json",
    "sbom.cdx.json",
  ]);
  expect(kinds["dist/fonts"]).toHaveLength(1);
  expect(Object.keys(kinds).sort()).toEqual([".", "dist/docs", "dist/fonts", "dist/page"]);
  expect([...release.files.keys()].filter((file) => file.endsWith(".map"))).toEqual([]);
  const { engines } = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8"));
  expect(JSON.parse(textOf("package.json"))).toMatchObject({ type: "module", main: "dist/main.mjs", engines });
  expect(JSON.parse(textOf("package.json"))).not.toHaveProperty("dependencies");
  expect(textOf("host.json")).toBe(readFileSync(path.join(root, "host.json"), "utf8"));
});

test("the zip's entries are sorted, have one date, and have the permissions of plain files", () => {
  const entries = readCentralDirectory(readFileSync(release.zip));
  expect(entries.map(({ name }) => name)).toEqual([...release.files.keys()].sort());
  const [first] = entries;
  // 33 is January 1, 1980 in the date format of zip files.
  for (const { time, date, mode } of entries)
    expect({ time, date, mode }).toEqual({ time: 0, date: 33, mode: 0o100644 });
  expect(first!.name).toBe("CHANGELOG.md");
});

test("the bill of materials is CycloneDX 1.6 and names only the bundled packages", () => {
  const bom = JSON.parse(textOf("sbom.cdx.json"));
  const ajv = new Ajv({ strict: false });
  addFormats.default(ajv).addFormat("iri-reference", true).addFormat("idn-email", true);
  const schemas = path.join(root, "node_modules/@cyclonedx/cyclonedx-library/res/schema");
  const schema = (name: string) => JSON.parse(readFileSync(path.join(schemas, `${name}.SNAPSHOT.schema.json`), "utf8"));
  for (const name of ["spdx", "jsf-0.82"]) ajv.addSchema(schema(name), `${name}.SNAPSHOT.schema.json`);
  // Without the $id, the references to the two schemas above are resolved by their file names.
  const { $id: _, ...schemaOfVersion16 } = schema("bom-1.6");
  const valid = ajv.compile(schemaOfVersion16);
  valid(bom);
  expect(valid.errors).toBeNull();
  expect(
    valid({ ...bom, components: [{ ...bom.components[0], licenses: [{ license: { id: "MIT License" } }] }] }),
  ).toBe(false);

  // The build of this run's tests has the same sources.
  const { metafile, copied } = JSON.parse(readFileSync(path.join(TEST_APP, "built.json"), "utf8")) as BuiltApp;
  const bundled = Object.values(metafile.outputs).flatMap(({ inputs }) =>
    Object.keys(inputs).filter((file) => inputs[file]!.bytesInOutput > 0),
  );
  const packages = [...bundled, ...copied]
    .filter((file) => file.includes("node_modules/"))
    .map((file) => file.split("node_modules/").at(-1)!)
    .map((file) => file.split("/", file.startsWith("@") ? 2 : 1).join("/"));
  const names = bom.components.map((each: { group?: string; name: string }) =>
    [each.group, each.name].filter(Boolean).join("/"),
  );
  expect(packages).toEqual(expect.arrayContaining(["redoc", "swagger-ui-dist", "@fontsource/unifontex", "react"]));
  expect([...new Set(names)].sort()).toEqual([...new Set(packages)].sort());

  const lock = JSON.parse(readFileSync(path.join(root, "package-lock.json"), "utf8"));
  const zod = bom.components.find(({ name }: { name: string }) => name === "zod");
  expect(zod).toMatchObject({ purl: `pkg:npm/zod@${zod.version}`, licenses: [{ license: { id: "MIT" } }] });
  const { integrity } = lock.packages["node_modules/zod"];
  expect(integrity).toBe(`sha512-${Buffer.from(zod.hashes[0].content, "hex").toString("base64")}`);
  expect(bom.components.filter(({ hashes, licenses }: { hashes?: []; licenses?: [] }) => !hashes || !licenses)).toEqual(
    [],
  );
});

test("the bill of materials connects every package with the app", () => {
  const bom = JSON.parse(textOf("sbom.cdx.json")) as {
    metadata: { component: { "bom-ref": string } };
    components: { "bom-ref": string }[];
    dependencies: { ref: string; dependsOn?: string[] }[];
  };
  const dependencies = new Map(bom.dependencies.map(({ ref, dependsOn }) => [ref, dependsOn ?? []]));
  const reached = new Set([bom.metadata.component["bom-ref"]]);
  for (const ref of reached) for (const next of dependencies.get(ref) ?? []) reached.add(next);
  expect(bom.components.map((each) => each["bom-ref"]).filter((ref) => !reached.has(ref))).toEqual([]);
});

test("the license file names every package, with its license text if the package contains one", () => {
  const licenseFile = textOf("THIRD-PARTY-LICENSES.txt");
  for (const { name, version, license, licenseTexts } of release.bundled.packages.values()) {
    expect(licenseFile).toContain(`${name} ${version} (${license})`);
    for (const each of licenseTexts) expect(licenseFile).toContain(each);
  }
  const withoutText = [...release.bundled.packages.values()].filter(({ licenseTexts }) => licenseTexts.length === 0);
  expect(withoutText.length).toBeLessThan(15);
  expect(licenseFile.split("These packages declare a license")[1]).toContain(withoutText[0]!.name);
  expect(licenseFile).toContain("Apache License");
  expect(licenseFile).toContain("SIL OPEN FONT LICENSE");
});

test("the release check reports the test license key and the source maps of a local build", () => {
  const localFiles = Object.fromEntries(
    globSync("dist/*", { cwd: TEST_APP, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map(({ name }) => [`dist/${name}`, readFileSync(path.join(TEST_APP, "dist", name))]),
  );
  const problems = problemsOf(new Map(Object.entries(localFiles)), release.bundled, root);
  const { x } = createPublicKey(licensePrivateKey()).export({ format: "jwk" });
  expect(problems).toContain(`the license key ${x} is built in but is not the vendor's`);
  expect(problems).toContain("dist/main.mjs.map: is not a file of a release");
});

test("the release check reports files, texts and sources of tests, the local service and development", () => {
  /** The files that contain the vendor's license key. A release without the key is a problem itself. */
  const filesWithLicenseKey = [...release.files].filter(([, data]) => Buffer.from(data).includes("vendor-2026-11"));
  /** Returns the problems of a release with an additional file. `bundled` replaces members of the build's description. */
  const problemsWith = (file: string, content = "", bundled = {}) =>
    problemsOf(
      new Map([...filesWithLicenseKey, [file, Buffer.from(content)]]),
      { ...release.bundled, ...bundled },
      root,
    );
  expect(problemsWith("dist/main-2.mjs")).toEqual([]);
  for (const file of [
    "dist/alerts.test.ts",
    "local.settings.json",
    "node_modules/zod/index.js",
    "dist/docs/redoc.js.map",
  ])
    expect(problemsWith(file)).toEqual([`${file}: is not a file of a release`]);
  for (const content of [
    ...DEVELOPMENT_TEXTS,
    "//# sourceMappingURL=data:application/json;base64,e30=",
    `${root}/shared/`,
  ])
    expect([content, problemsWith("dist/more.mjs", content)]).toEqual([
      content,
      [expect.stringMatching(/^dist\/more\.mjs: /)],
    ]);
  for (const file of ["test/support/service.ts", "infra/simulated-cloud/cloud.ts", "functions/commands/licence.ts"]) {
    const bundledSources = [...release.bundled.own, file];
    expect(problemsWith("dist/more.mjs", "", { own: bundledSources })).toEqual([
      `${file}: is bundled but is not part of the app`,
    ]);
  }
  expect(problemsWith("dist/more.mjs", "", { forDevelopment: ["vitest@5.1.1"] })).toHaveLength(1);
  const unlicensedPackage = {
    ...release.bundled.packages.values().next().value!,
    license: undefined,
    licenseTexts: [],
  };
  expect(problemsWith("dist/more.mjs", "", { packages: new Map([["a@1.0.0", unlicensedPackage]]) })).toHaveLength(1);
  expect(filesWithLicenseKey).toHaveLength(1);
  expect(problemsOf(new Map(), release.bundled, root)).toEqual([expect.stringContaining("is not found")]);
});

test.each(["/app", "/code", "/src", "/repo", "/work"])(
  "the release check reports paths of the build folder %s, but not addresses that contain the same word",
  (folder) => {
    expect(problemsOf(release.files, release.bundled, folder)).toEqual([]);
    const files = new Map([...release.files, ["dist/more.mjs", Buffer.from(`"${folder}/node_modules/zod/index.js"`)]]);
    expect(problemsOf(files, release.bundled, folder)).toEqual([
      `dist/more.mjs: contains the path of the folder ${folder}`,
    ]);
  },
);

test("the texts by which the release check recognizes local builds occur in the sources of the local service and tests", () => {
  const sources = globSync("{infra/local,infra/simulated-cloud,infra/functions-host,test}/**/*.{ts,mjs}", {
    cwd: root,
    exclude: ["test/build/**"],
  });
  const allSources = sources.map((file) => readFileSync(path.join(root, file), "utf8")).join("\n");
  expect(DEVELOPMENT_TEXTS.filter((text) => !allSources.includes(text))).toEqual([]);
});

/**
 * Reads the central directory of a zip file, at offsets of the format's specification:
 * https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT 4.3.12
 */
function readCentralDirectory(zip: Buffer): { name: string; time: number; date: number; mode: number }[] {
  const endRecord = zip.lastIndexOf(Buffer.from("PK\x05\x06", "latin1"));
  const entries = [];
  let offset = zip.readUInt32LE(endRecord + 16);
  while (zip.readUInt32LE(offset) === 0x02014b50) {
    const [nameLength, extraLength, commentLength] = [28, 30, 32].map((field) => zip.readUInt16LE(offset + field));
    entries.push({
      name: zip.toString("utf8", offset + 46, offset + 46 + nameLength!),
      time: zip.readUInt16LE(offset + 12),
      date: zip.readUInt16LE(offset + 14),
      mode: zip.readUInt16LE(offset + 40),
    });
    offset += 46 + nameLength! + extraLength! + commentLength!;
  }
  return entries;
}
