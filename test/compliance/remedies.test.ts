/*
 * Remediation steps of every check: portal text, Azure CLI commands and Bicep. A resource's name must not inject commands, no
 * step may delete or disable the old credential before its replacement works, and the steps must fit the resource.
 */
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
import { destructiveLines, findOrderMistakes } from "./remedy-order.ts";

const APP = "33333333-3333-3333-3333-333333333333";
const KEY = "44444444-4444-4444-4444-444444444444";
const TENANT = "22222222-2222-2222-2222-222222222222";

/** Returns the remediation of a check for a secret `db` in the vault `kv-pay`, or for another target. */
const remediationOf = (checkId: string, facts: AssetFacts = {}, change: Partial<Target> = {}) =>
  checkOfId.get(checkId)!.remedy({ vault: "kv-pay", name: "db", facts, now: START, ...change });

/**
 * Runs a remediation's commands in a shell in which `az` and `jq` are functions that only print their arguments.
 *
 * @returns the arguments of each command, preceded by its name.
 */
function captureCommands(shell: string, cli: string, folder: string): string[][] {
  // The functions end each argument with a zero byte, and each command with the byte 1 as a further argument.
  const script = `
    print_arguments() { printf '%s\\0' "$@"; printf '\\1\\0'; }
    az() { case "$*" in *"--output tsv"*) printf resource-id;; *) print_arguments az "$@" >&2;; esac; }
    jq() { while read -r _; do :; done; print_arguments jq "$@" >&2; }
    ${cli}`;
  const output = execFileSync(shell, ["-c", `{ ${script}\n} 2>&1 >/dev/null`], {
    cwd: folder,
    env: { ...process.env, LC_ALL: "C" },
  }).toString();
  const commands: string[][] = [[]];
  for (const word of output.split("\0").slice(0, -1)) {
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
  /** Names that run a command, or change the text's direction, unless they are quoted. The command creates the canary file. */
  const hostileNames = [
    `-x`,
    `'; : > ${canary}; '`,
    `$(: > ${canary})`,
    `\`: > ${canary}\``,
    `a\n: > ${canary}\n`,
    `'\n; : > ${canary}; '`,
    `# "\\`,
    `\u202Eevil`,
  ];

  withShell.each(CHECKS.map(({ id }) => id))(
    "%s: a hostile resource name is passed as one argument and runs nothing",
    (id) => {
      const isApplicationCheck = /client-secret|application-certificate|b2c/.test(id);
      const names = isApplicationCheck ? [`${APP}-${KEY}`] : hostileNames;
      const holderName = id.includes("b2c") ? `b2c-${TENANT}-application-3` : `entra-${TENANT}-3`;
      const remediations = names.map((name) =>
        remediationOf(id, {}, { vault: isApplicationCheck ? holderName : name, name }),
      );
      const commands = captureCommands(shell, remediations.map(({ cli }) => cli).join("\n"), folder);
      expect(existsSync(canary), remediations.map(({ cli }) => cli).join("\n")).toBe(false);
      const words = commands.flat().flatMap((word) => [word, word.slice(word.indexOf("=") + 1)]);
      // Shells such as dash don't support the quotes $'…' for control characters. They pass a different, also harmless
      // argument.
      const isPassedUnchanged = (name: string) => shell === "bash" || !/[\p{Cc}\p{Cf}]/u.test(name);
      const expectedNames = isApplicationCheck ? [APP] : names.filter(isPassedUnchanged);
      // Commands name a vault, its private endpoint (`pe-…`), or the resource ID that `az` returned. IDs of applications can be
      // part of a URL.
      const isNamed = (name: string) => (word: string) =>
        isApplicationCheck ? word.includes(name) : [name, `pe-${name}`, "resource-id"].includes(word);
      for (const name of expectedNames) expect(words.some(isNamed(name)), name).toBe(true);
      for (const { portal, bicep, bicepNote } of remediations) {
        expect(portal).not.toMatch(/[\p{Cc}\p{Cf}]/u);
        expect(bicepNote).toMatch(/\.$/);
        if (bicep !== null) expect(bicep).not.toContain("\u202E");
      }
    },
  );
});

test("every template is valid Bicep with current API versions, and keys and certificates have none", async () => {
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
  // A Bicep deployment can't change existing keys and certificates.
  expect(types.sort()).toEqual(["secret", "vault"]);
});

describe("no remediation deletes, disables or restricts anything before its replacement works", () => {
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
  /** Each check with its remediations for all combinations of target and facts. */
  const remediationsByCheck = CHECKS.map(
    (check) =>
      [
        check.id,
        targets.flatMap((target) =>
          facts.map((assetFacts) => check.remedy({ ...target, facts: assetFacts, now: START })),
        ),
      ] as const,
  );

  test.each(remediationsByCheck)("%s", (_, remedies) => {
    expect([...new Set(remedies.flatMap(findOrderMistakes))]).toEqual([]);
  });

  test("the tested remediations include destructive ones", () => {
    const destructive = remediationsByCheck.filter(([, remedies]) =>
      remedies.some((remediation) => destructiveLines(remediation).length > 0),
    );
    expect(destructive.map(([id]) => id)).toEqual(
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
  ])("the remediation of a weak %s key creates a key with %s", (keyType, keyOptions) => {
    const { cli, bicep, bicepNote } = remediationOf("key-type", { keyType });
    expect(cli).toContain(`az keyvault key create --vault-name kv-pay --name db ${keyOptions} --expires `);
    expect(bicep).toBeNull();
    expect(bicepNote).toContain("does not change an existing key");
  });

  test("an asset within its maximum validity gets an expiration date, an older one a new version", () => {
    const recent = remediationOf("secret-expiry-set-rbac", { from: inDays(-100) });
    expect(recent.cli).toBe(
      "az keyvault secret set-attributes --vault-name kv-pay --name db --expires 2027-05-20T00:00:00Z",
    );
    const nearlyTooOld = remediationOf("secret-expiry-set-rbac", { from: inDays(-660) });
    // The date is at most 730 days after the asset's activation.
    expect(nearlyTooOld.cli).toContain("--expires 2027-01-30T10:00:00Z");
    const tooOld = remediationOf("secret-expiry-set-rbac", { from: inDays(-900) });
    expect(tooOld.cli).toMatch(/^az keyvault secret set --vault-name kv-pay --name db --file '<.+>' --expires /);
    expect(remediationOf("key-validity-period", { from: inDays(-10) }).cli).toContain("set-attributes");
    expect(remediationOf("key-validity-period", { from: inDays(-710) }).cli).toContain("az keyvault key rotate ");
  });

  test("commands for application credentials name their IDs, and sign in to a B2C tenant first", () => {
    const target = { vault: `entra-${TENANT}-3`, name: `${APP}-${KEY}` };
    const ofApp = remediationOf("client-secret-expired", {}, target);
    expect(ofApp.cli.split("\n")).toEqual([
      expect.stringMatching(/^# All credentials of the application/),
      `az ad app credential list --id ${APP}`,
      expect.stringMatching(/^# If the application has no valid one/),
      expect.stringMatching(new RegExp(`^# az ad app credential reset --id ${APP} --append --display-name `)),
      expect.stringMatching(/^# After every consumer signs in with a valid one/),
      `# az ad app credential delete --id ${APP} --key-id ${KEY}`,
    ]);
    const ofPrincipal = remediationOf("client-secret-expired", { servicePrincipal: true }, target);
    expect(ofPrincipal.cli).toContain(`\n# az ad sp credential delete --id ${APP}`);
    const b2c = { ...target, vault: `b2c-${TENANT}-application-3` };
    const signIn = `az login --tenant ${TENANT} --allow-no-subscriptions && `;
    const ofTenant = remediationOf("b2c-secret-expired", {}, b2c).cli;
    expect(ofTenant).toContain(`\n${signIn}az ad app credential list --id ${APP}\n`);
    expect(ofTenant).toContain(`\n# ${signIn}az ad app credential delete --id ${APP}`);
    const key = { vault: `b2c-${TENANT}-policykey`, name: "B2C_1A_TokenSigning-0123456789abcdef" };
    expect(remediationOf("b2c-key-expired", {}, key).cli).toContain("/keySets/B2C_1A_TokenSigning/generateKey");
    const provider = { vault: `b2c-${TENANT}-identityprovider`, name: "Google-OAUTH" };
    expect(remediationOf("b2c-secret-expired", {}, provider).cli).toContain("identityProviders/Google-OAUTH");
  });
});
