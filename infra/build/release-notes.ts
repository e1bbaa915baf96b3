/** Prints the notes of a release on GitHub: a button that deploys it, the next commands, and its section of CHANGELOG.md. */
import { readFileSync } from "node:fs";
import path from "node:path";
import { commandLine, exitWithUsageError } from "./command-line.ts";
import { sourceVersion } from "./source-version.ts";

const HELP = `node infra/build/release-notes.ts --repository OWNER/NAME

Prints the notes of the release of package.json's version.

  --repository OWNER/NAME   the repository on GitHub that publishes the release`;

const ROOT = path.resolve(import.meta.dirname, "../..");

/**
 * Returns the notes in Markdown.
 * @param repository `owner/name` on GitHub
 * @throws if the changelog has no section of the version
 */
export function releaseNotes(repository: string, version: string, changelog: string): string {
  const changes = sectionOf(version, changelog);
  // The portal reads the template in the browser. GitHub allows that for files of a branch, but not for files of a release, so the
  // workflow puts the release's template on the branch `templates` too.
  const template = `https://raw.githubusercontent.com/${repository}/templates/v${version}/azuredeploy.json`;
  const portal = `https://portal.azure.com/#create/Microsoft.Template/uri/${encodeURIComponent(template)}`;
  const documentation = `https://github.com/${repository}/blob/v${version}/docs`;
  return `[![Deploy to Azure](https://aka.ms/deploytoazurebutton)](${portal})

The button creates the resources. Then run the commands of [releases.md](${documentation}/releases.md#deploy), which make the secrets and deploy the app.
Terraform: \`source = "https://github.com/${repository}/releases/download/v${version}/credential-lifecycle-terraform-${version}.zip//infra/terraform"\`.
From an earlier version: [upgrading.md](${documentation}/upgrading.md).

${changes}
`;
}

/** Returns the text below the heading of a version, without the date in the heading: `## 1.0.0, 2027-01-31`. */
function sectionOf(version: string, changelog: string): string {
  const section = changelog
    .split(/^## /m)
    .slice(1)
    .find((one) => one.split(/[\s,]/, 1)[0] === version);
  if (section === undefined) throw new Error(`CHANGELOG.md has no section of version ${version}.`);
  return section.slice(section.indexOf("\n")).trim();
}

if (import.meta.main) {
  const { values } = commandLine(HELP, { options: { repository: { type: "string" } } });
  if (!/^[\w.-]+\/[\w.-]+$/.test(values.repository ?? "")) exitWithUsageError("--repository must be OWNER/NAME");
  const changelog = readFileSync(path.join(ROOT, "CHANGELOG.md"), "utf8");
  console.log(releaseNotes(values.repository!, sourceVersion(ROOT).version, changelog));
}
