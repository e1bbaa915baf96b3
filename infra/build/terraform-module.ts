// Lists the files of the Terraform module of a release. The module reads some files of infra/azure, and the version from
// package.json, so the archive keeps the folders of the repository.

import { globSync, readFileSync } from "node:fs";
import path from "node:path";

/** Files that the modules read, next to their own. test/build/package.test.ts compares the list with the modules. */
const READ_FILES = [
  "infra/azure/clouds.json",
  "infra/azure/workbook.json",
  "infra/azure/queries/*.kql",
  "infra/azure/events-policy/policy.json",
  "infra/azure/rotation/key-actions.json",
];

/**
 * Returns the contents of the module's files by path, without the tests and what Terraform downloaded.
 * @param root the project's folder
 */
export function terraformModuleFiles(root: string): Map<string, Uint8Array> {
  const files = globSync(["infra/terraform/**/*.{tf,md}", ...READ_FILES], {
    cwd: root,
    exclude: (name) => /(^|[\\/])(\.terraform|tests)([\\/]|$)/.test(name),
  });
  return new Map(
    files
      .map((file) => file.split(path.sep).join("/"))
      .sort()
      .map((file) => [file, readFileSync(path.join(root, file))]),
  );
}
