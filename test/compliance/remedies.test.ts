import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { retiredVersionsIn } from "template-checks/api-versions.ts";
import { parseBicep } from "template-checks/bicep/parse.ts";
import { afterAll, describe, expect, test } from "vitest";
import { CHECKS, checkOfId } from "../../shared/compliance/checks/all.ts";
import type { AssetFacts } from "../../shared/compliance/finding-facts.ts";
import type { Target } from "../../shared/compliance/remedies/remediation.ts";
import { skipWithout } from "../support/tools.ts";
import { inDays, START } from "./compliance-fixture.ts";
import { mistakesOfOrder, takingLines } from "./remedy-order.ts";

const APP = "33333333-3333-3333-3333-333333333333";
const KEY = "44444444-4444-4444-4444-444444444444";
const TENANT = "22222222-2222-2222-2222-222222222222";

const remedy = (checkId: string, facts: AssetFacts = {}, change: Partial<Target> = {}) =>
  checkOfId.get(checkId)!.remedy({ vault: "kv-pay", name: "db", facts, now: START, ...change });

/**
 * Runs lines in a shell, in any locale. The commands of the remedies are functions that only print their arguments.
 *
 * @returns the words of each command.
 */
function run(shell: string, cli: string, folder: string): string[][] {
  const script = `
    said() { printf '%s\\0' "$@"; printf '\\1\\0'; }
    az() { case "$*" in *"--output tsv"*) printf resource-id;; *) said az "$@" >&2;; esac; }
    jq() { while read -r _; do :; done; said jq "$@" >&2; }
    ${cli}`;
  const said = execFileSync(shell, ["-c", `{ ${script}\n} 2>&1 >/dev/null`], {
    cwd: folder,
    env: { ...process.env, LC_ALL: "C" },
  }).toString();
  const commands: string[][] = [[]];
  for (const word of said.split("\0").slice(0, -1)) {
    if (word === "\u0001") commands.push([]);
    else commands.at(-1)!.push(word);
  }
  return commands.slice(0, -1);
}

const folder = mkdtempSync(path.join(tmpdir(), "remedies-"));
afterAll(() => rmSync(folder, { recursive: true }));

describe.each(["sh", "bash"])("remediations in %s", (shell) => {
  const withShell = test.skipIf(shell === "bash" && skipWithout("bash"));
  const canary = path.join(folder, "canary");
  const hostile = [
    `-x`,
    `'; : > ${canary}; '`,
    `$(: > ${canary})`,
    `\`: > ${canary}\``,
    `a\n: > ${canary}\n`,
    `'\n; : > ${canary}; '`,
    `# "\\`,
    `\u202Eevil`,
  ];

  withShell.each(CHECKS.map(({ id }) => id))("%s: a name is one word, whatever it holds, and does nothing", (id) => {
    const ofApplication = /client-secret|application-certificate|b2c/.test(id);
    const names = ofApplication ? [`${APP}-${KEY}`] : hostile;
    const holder = id.includes("b2c") ? `b2c-${TENANT}-application-3` : `entra-${TENANT}-3`;
    const remedies = names.map((name) => remedy(id, {}, { vault: ofApplication ? holder : name, name }));
    const said = run(shell, remedies.map(({ cli }) => cli).join("\n"), folder);
    expect(existsSync(canary), remedies.map(({ cli }) => cli).join("\n")).toBe(false);
    const words = said.flat().flatMap((word) => [word, word.slice(word.indexOf("=") + 1)]);
    // An older sh, such as dash, does not support $'…'. It reads a different word then, which is also harmless.
    const isKnown = (name: string) => shell === "bash" || !/[\p{Cc}\p{Cf}]/u.test(name);
    const wanted = ofApplication ? [APP] : names.filter(isKnown);
    // Commands for a vault query its ID by name. IDs of applications are also part of URLs.
    const isNamed = (name: string) => (word: string) =>
      ofApplication ? word.includes(name) : [name, `pe-${name}`, "resource-id"].includes(word);
    for (const name of wanted) expect(words.some(isNamed(name)), name).toBe(true);
    for (const { portal, bicep, bicepNote } of remedies) {
      expect(portal).not.toMatch(/[\p{Cc}\p{Cf}]/u);
      expect(bicepNote).toMatch(/\.$/);
      if (bicep !== null) expect(bicep).not.toContain("\u202E");
    }
  });
});

test("templates are valid Bicep, and only exist if one changes the resource", async () => {
  const withTemplate: string[] = [];
  for (const check of CHECKS) {
    for (const name of ["db", `it's \${x}\n\\`]) {
      const { bicep } = check.remedy({ vault: "kv-pay", name, facts: {}, now: START });
      if (bicep === null) continue;
      withTemplate.push(check.id);
      const { resources, findings } = await parseBicep("remedy.bicep", bicep);
      expect([check.id, findings]).toEqual([check.id, []]);
      expect([check.id, retiredVersionsIn(bicep)]).toEqual([check.id, []]);
      expect(resources.length).toBeGreaterThan(0);
    }
  }
  const types = [...new Set(withTemplate.map((id) => id.split("-")[0]))];
  // No template of keys and certificates changes an existing one.
  expect(types.sort()).toEqual(["secret", "vault"]);
});

describe("no remediation takes anything away before its replacement works", () => {
  const credential = `${APP}-${KEY}`;
  const targets = [
    { vault: "kv-pay", name: "db" },
    { vault: `entra-${TENANT}-3`, name: credential },
    { vault: `b2c-${TENANT}-application-3`, name: credential },
    { vault: `b2c-${TENANT}-policykey`, name: "B2C_1A_TokenSigning-0123456789abcdef" },
    { vault: `b2c-${TENANT}-identityprovider`, name: "Google-OAUTH" },
  ];
  const facts: AssetFacts[] = [
    {},
    { servicePrincipal: true },
    { keyType: "EC-HSM" },
    { from: inDays(-10) },
    { from: inDays(-900) },
  ];
  const walked = CHECKS.map(
    (check) =>
      [
        check.id,
        targets.flatMap((target) => facts.map((one) => check.remedy({ ...target, facts: one, now: START }))),
      ] as const,
  );

  test.each(walked)("%s", (_, remedies) => {
    expect([...new Set(remedies.flatMap(mistakesOfOrder))]).toEqual([]);
  });

  test("the tested remediations include some that take something away", () => {
    const taking = walked.filter(([, remedies]) => remedies.some((one) => takingLines(one).length > 0));
    expect(taking.map(([id]) => id)).toEqual(
      expect.arrayContaining([
        "client-secret-expired",
        "application-certificate-near-expiry-critical",
        "client-secret-beside-certificate",
        "b2c-secret-expired",
        "secret-expired",
        "secret-unused",
        "vault-rbac",
        "vault-public-access",
        "vault-firewall",
      ]),
    );
  });
});

describe("a remediation matches its resource", () => {
  test.each([
    ["RSA", "--kty RSA --size 3072"],
    ["RSA-HSM", "--kty RSA-HSM --size 3072"],
    ["EC", "--kty EC --curve P-256"],
    ["EC-HSM", "--kty EC-HSM --curve P-256"],
    ["oct-HSM", "--kty RSA-HSM --size 3072"],
  ])("a weak %s key is replaced by one of its own kind", (keyType, wanted) => {
    const { cli, bicep, bicepNote } = remedy("key-type", { keyType });
    expect(cli).toContain(`az keyvault key create --vault-name kv-pay --name db ${wanted} --expires `);
    expect(bicep).toBeNull();
    expect(bicepNote).toContain("does not change an existing key");
  });

  test("an asset that may still be valid gets a date, a too old one a new version", () => {
    const young = remedy("secret-expiry-set-rbac", { from: inDays(-100) });
    expect(young.cli).toBe(
      "az keyvault secret set-attributes --vault-name kv-pay --name db --expires 2027-05-20T00:00:00Z",
    );
    const nearly = remedy("secret-expiry-set-rbac", { from: inDays(-660) });
    // At most 730 days after its activation.
    expect(nearly.cli).toContain("--expires 2027-01-30T10:00:00Z");
    const old = remedy("secret-expiry-set-rbac", { from: inDays(-900) });
    expect(old.cli).toMatch(/^az keyvault secret set --vault-name kv-pay --name db --file '<.+>' --expires /);
    expect(remedy("key-validity-period", { from: inDays(-10) }).cli).toContain("set-attributes");
    expect(remedy("key-validity-period", { from: inDays(-710) }).cli).toContain("az keyvault key rotate ");
  });

  test("a client secret is identified by its IDs, with the service principal's command or a sign-in to the B2C tenant if needed", () => {
    const target = { vault: `entra-${TENANT}-3`, name: `${APP}-${KEY}` };
    const ofApp = remedy("client-secret-expired", {}, target);
    expect(ofApp.cli.split("\n")).toEqual([
      expect.stringMatching(/^# All credentials of the application/),
      `az ad app credential list --id ${APP}`,
      expect.stringMatching(/^# If the application has no valid one/),
      expect.stringMatching(new RegExp(`^# az ad app credential reset --id ${APP} --append --display-name `)),
      expect.stringMatching(/^# After every consumer signs in with a valid one/),
      `# az ad app credential delete --id ${APP} --key-id ${KEY}`,
    ]);
    const ofPrincipal = remedy("client-secret-expired", { servicePrincipal: true }, target);
    expect(ofPrincipal.cli).toContain(`\n# az ad sp credential delete --id ${APP}`);
    const b2c = { ...target, vault: `b2c-${TENANT}-application-3` };
    const signIn = `az login --tenant ${TENANT} --allow-no-subscriptions && `;
    const ofTenant = remedy("b2c-secret-expired", {}, b2c).cli;
    expect(ofTenant).toContain(`\n${signIn}az ad app credential list --id ${APP}\n`);
    expect(ofTenant).toContain(`\n# ${signIn}az ad app credential delete --id ${APP}`);
    const key = { vault: `b2c-${TENANT}-policykey`, name: "B2C_1A_TokenSigning-0123456789abcdef" };
    expect(remedy("b2c-key-expired", {}, key).cli).toContain("/keySets/B2C_1A_TokenSigning/generateKey");
    const provider = { vault: `b2c-${TENANT}-identityprovider`, name: "Google-OAUTH" };
    expect(remedy("b2c-secret-expired", {}, provider).cli).toContain("identityProviders/Google-OAUTH");
  });
});
