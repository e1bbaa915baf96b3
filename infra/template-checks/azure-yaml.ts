// Checks azure.yaml, the configuration of the Azure Developer CLI.

import { parseDocument } from "yaml";
import * as z from "zod";
import type { Finding } from "./expression.ts";
import type { InfraFiles } from "./files.ts";

const Hook = z.strictObject({ shell: z.enum(["sh", "pwsh"]), run: z.string().min(1) });
/**
 * Schema of the members of azure.yaml that this project uses. Other members are findings.
 * https://learn.microsoft.com/azure/developer/azure-developer-cli/azd-schema
 */
const AzureYaml = z.strictObject({
  name: z.string().regex(/^[a-z0-9][a-z0-9-]*$/),
  infra: z.strictObject({ provider: z.literal("bicep"), path: z.string(), module: z.string() }),
  services: z.record(
    z.string(),
    z.strictObject({
      project: z.string(),
      language: z.enum(["js", "ts"]),
      host: z.literal("function"),
      remoteBuild: z.boolean(),
    }),
  ),
  hooks: z.partialRecord(
    z.enum(["preprovision", "postprovision", "predeploy", "postdeploy"]),
    z.strictObject({ posix: Hook, windows: Hook }),
  ),
});

/**
 * Checks azure.yaml: its schema, the files that it names, and that each hook runs a script of package.json.
 * @param scripts Names of the scripts in package.json
 */
export function checkAzureYaml(files: InfraFiles, scripts: readonly string[]): Finding[] {
  const file = "azure.yaml";
  const document = parseDocument(files.text.get(file) ?? "");
  const finding = (message: string): Finding => ({ file, line: 1, message });
  if (document.errors.length > 0) return document.errors.map(({ message }) => finding(message.split("\n")[0]!));
  const parsed = AzureYaml.safeParse(document.toJS());
  if (!parsed.success) {
    return parsed.error.issues.map((issue) => finding(`${issue.path.join(".")}: ${issue.message}`));
  }
  const { infra, services, hooks } = parsed.data;
  const template = `${infra.path}/${infra.module}.bicep`;
  const findings = files.text.has(template) ? [] : [finding(`there is no template ${template}`)];
  for (const [name, { project }] of Object.entries(services)) {
    if (!files.exists(`${project}/host.json`)) findings.push(finding(`services.${name}.project contains no host.json`));
    const tag = `'azd-service-name': '${name}'`;
    if (![...files.text].some(([path, text]) => path.endsWith(".bicep") && text.includes(tag))) {
      findings.push(finding(`no resource has the tag azd-service-name of the service ${name}`));
    }
  }
  for (const { posix, windows } of Object.values(hooks)) {
    for (const { run } of [posix, windows]) {
      const script = /^npm run (\S+)$/.exec(run)?.[1];
      if (script === undefined || !scripts.includes(script))
        findings.push(finding(`${run} is not a script in package.json`));
    }
    if (posix.run !== windows.run) findings.push(finding("a hook must do the same on every system"));
  }
  return findings;
}
