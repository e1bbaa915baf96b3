import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { RENEWER_NAMES } from "../../shared/inventory/renewal.ts";
import { DEFINITIONS } from "../../shared/settings/definitions.ts";

// Tests of the page's texts: commands and CSV files for other programs, names of renewers, and labels of settings.

/** Loads a module of the page, which has its own TypeScript project. */
// biome-ignore lint/suspicious/noExplicitAny: see above
const load = async (part: string, folder = "parts"): Promise<any> =>
  await import(new URL(`../../functions/web/src/${folder}/${part}.ts`, import.meta.url).href);

const asset = {
  type: "secret",
  name: "db",
  vaultName: "kv-shop",
  source: "keyVault",
  credential: null,
  tags: { team: "Zahlungen & Co" } as Record<string, string>,
};
const withTags = (tags: Record<string, string>) => ({ ...asset, tags });

/** Runs a command in a shell whose `az` only prints its arguments, one a line. */
const argumentsOf = (command: string): string[] =>
  execFileSync("sh", ["-c", `az() { printf '%s\\n' "$@"; }\n${command}`], { encoding: "utf8" })
    .trimEnd()
    .split("\n");

test("the command that assigns an owner keeps the other tags, each as one argument", async () => {
  const { ownerCommand } = await load("asset-commands");
  const tags = { team: "Payments, EU", url: "https://acme.example/a@b", since: "-1", note: "" };
  const command: string = ownerCommand(withTags(tags), "owner", "o'neil $(id)");
  const options = ["keyvault", "secret", "set-attributes", "--vault-name", "kv-shop", "--name", "db", "--tags"];
  const values = ["team=Payments, EU", "url=https://acme.example/a@b", "since=-1", "note=", "owner=o'neil $(id)"];
  expect(argumentsOf(command)).toEqual([...options, ...values]);
});

test.each([
  ["an option of the Azure CLI", { "--vault-name": "kv-other" }],
  ["a file", { "@/etc/passwd": "" }],
  ["another tag", { "owner=mallory": "x" }],
  ["a key that ends a line", { note: "x\u0015id\r" }],
  ["a line break", { note: "x\nid" }],
  ["the end of a quotation in PowerShell", { note: "it's $(id)" }],
  ["another command of cmd", { note: "x&calc" }],
  ["a variable of cmd", { note: "%PATH%" }],
  ["a right-to-left override", { note: "x\u202ey" }],
])("no command contains a tag that would be taken for %s", async (_, tags) => {
  const { hasSafeTags, ownerCommand } = await load("asset-commands");
  expect([hasSafeTags(withTags(tags)), ownerCommand(withTags(tags), "owner", "ann")]).toEqual([false, undefined]);
});

test("a name that starts with a dash is not taken for an option", async () => {
  const { renewCommand } = await load("asset-commands");
  expect(renewCommand({ ...asset, type: "key", name: "-h" })).toBe(
    "az keyvault key rotate --vault-name kv-shop --name=-h",
  );
});

test("comments in commands have no quotes, which an interactive zsh would not ignore", async () => {
  const { renewCommand } = await load("asset-commands");
  const comments = String(renewCommand({ ...asset, type: "certificate" })).match(/^#.*$/gm);
  expect(comments).toHaveLength(1);
  expect(comments![0]).not.toMatch(/['"`;&|$]/);
});

test("a downloaded table has no value that a spreadsheet would run", async () => {
  const { csvOf } = await load("table-csv");
  const values = ["=1+1", "\u200b=1+1", "\uff1d1+1", "\u0001@x", "|calc", "%x", "-2", 'a"b', "plain"];
  const cellsOf = (texts: string[]) => ({ cells: texts.map((innerText) => ({ innerText })) });
  const csv: string = csvOf({ rows: [cellsOf(["Name", ""]), ...values.map((value) => cellsOf([value, "Delete"]))] });
  const escaped = ["'=1+1", "'\u200b=1+1", "'\uff1d1+1", "'\u0001@x", "'|calc", "'%x", "'-2", 'a""b', "plain"];
  expect(csv.replace("\uFEFF", "").trimEnd().split("\r\n")).toEqual(["Name", ...escaped].map((text) => `"${text}"`));
});

test("the page names renewers like the service's messages and reports", async () => {
  const { RENEWERS } = await load("renewers");
  expect(RENEWERS).toEqual(Object.fromEntries(Object.entries(RENEWER_NAMES).map(([name, { label }]) => [name, label])));
});

test("every setting has a label, every number a unit, and every choice a text", async () => {
  const { labelOf, unitOf, valueText } = await load("labels", "views/settings");
  for (const [key, { type, ...definition }] of Object.entries(DEFINITIONS)) {
    expect(labelOf(key), key).not.toBe(key);
    expect(labelOf(key), key).toMatch(/^[A-Z][a-z ]+$/);
    expect(unitOf(key) !== "", key).toBe(type === "integer");
    for (const value of "allowed" in definition ? (definition.allowed ?? []) : [])
      expect(valueText(key, value), `${key}: ${value}`).not.toBe("none");
  }
  expect([valueText("watchAll", false), valueText("discoveryScanTimeout", 3600)]).toEqual(["Off", "3,600 seconds"]);
});

test.each([
  [
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/142.0.0.0 Safari/537.36",
    "Chrome 142 on Windows",
  ],
  [
    "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0",
    "Edge 142 on Windows",
  ],
  ["Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0", "Firefox 145 on Linux"],
  [
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_7 like Mac OS X) AppleWebKit/605.1.15 Version/26.1 Mobile/15E148 Safari/604.1",
    "Safari 26 on iOS",
  ],
  ["curl/8.5.0", "curl/8.5.0"],
  [null, "Unknown browser"],
])("a session with the user agent %s is shown as %s", async (userAgent, text) => {
  const { browserText } = await load("browser-text", "views/people");
  expect(browserText(userAgent)).toBe(text);
});

test.each([
  ["literals: Detection is off.", "App settings with plaintext copies: Detection is off."],
  ["/subscriptions/1/providers/Microsoft.Web/sites/app-crm: Denied.", "app-crm: Denied."],
  ["1-2: Could not list vaults (subscription 1-2): denied.", "Could not list vaults (subscription 1-2): denied."],
  ["Not all secrets were searched.", "Not all secrets were searched."],
])("a place that could not be searched is named: %s", async (sentence, text) => {
  const { scopeText } = await load("dependency-texts");
  expect(scopeText(sentence)).toBe(text);
});
