// Checks the role with which rotations regenerate keys of Azure resources. Its actions by kind are in a file that both languages
// read. The file and the documentation must agree with the tables of kinds of the service.

import { ENGINES } from "../../shared/rotation/database-logins/engines.ts";
import { KEY_KINDS } from "../../shared/rotation/resource-keys/kinds.ts";
import { differences } from "./clouds.ts";
import type { Deployment } from "./evaluation/deployed.ts";
import type { Value } from "./evaluation/evaluate.ts";
import { ROTATED_KINDS } from "./evaluation/samples.ts";
import type { Finding } from "./expression.ts";
import type { InfraFiles } from "./files.ts";
import { cellsOf } from "./markdown-sections.ts";

const FILE = "infra/azure/rotation/key-actions.json";
const PAGE = "docs/rotation-key-roles.md";

/** Actions by kind, for all kinds whose keys or logins the service rotates. */
const ACTIONS = new Map<string, readonly string[]>(
  [...KEY_KINDS.filter(({ reportOnly }) => reportOnly === undefined), ...ENGINES].map(({ name, actions }) => [
    name,
    actions,
  ]),
);

/** Checks that the file and the page list exactly the actions of each kind. */
export function checkKeyActions(files: InfraFiles): Finding[] {
  let content: unknown;
  try {
    content = JSON.parse(files.text.get(FILE) ?? "");
  } catch {
    return [{ file: FILE, line: 1, message: "is not JSON" }];
  }
  const lines = (files.text.get(PAGE) ?? "").split("\n");
  return [
    ...differences(Object.fromEntries(ACTIONS), content).map((message) => ({ file: FILE, line: 1, message })),
    ...[...ACTIONS].flatMap(([kind, actions]) => {
      const index = lines.findIndex((line) => cellsOf(line)[0] === `\`${kind}\``);
      const [, listed = "", risk = ""] = cellsOf(lines[index] ?? "");
      const documented = [...listed.matchAll(/`([^`]+)`/g)].map(([, action]) => action);
      const finding = (message: string): Finding => ({ file: PAGE, line: index + 1 || 1, message });
      return [
        ...(documented.join() === actions.join()
          ? []
          : [finding(`${kind}: must list ${actions.join(", ")}, but lists ${documented.join(", ") || "nothing"}`)]),
        ...(risk === "" ? [finding(`${kind}: does not say what the role also allows`)] : []),
      ];
    }),
  ];
}

/** Checks that the role of a deployment has exactly the actions of the sample's kinds, each once. */
export function checkKeyRole({ resources }: Deployment): Finding[] {
  const expected = [...new Set(ROTATED_KINDS.flatMap((kind) => ACTIONS.get(kind) ?? []))].sort().join();
  return resources
    .filter(({ symbol }) => symbol === "key_rotator_definition")
    .flatMap(({ file, line, symbol, body }) => {
      const { permissions } = (body.properties ?? body) as { permissions?: { [name: string]: Value }[] };
      const actions = ((permissions?.[0]?.actions ?? []) as string[]).toSorted().join();
      return actions === expected
        ? []
        : [{ file, line, message: `${symbol}: must have the actions of its kinds, ${expected}, but has ${actions}` }];
    });
}
