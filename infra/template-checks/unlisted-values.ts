// Checks that each value that the templates set is in the table of values (invariants.ts, further-values.ts). A mistake in an
// unlisted value would be found only if one language alone had it.

import type { Finding } from "./expression.ts";
import type { Invariant } from "./further-values.ts";
import { type BicepResource, findingAt, type TerraformResource } from "./parity/declared-resources.ts";
import { snake } from "./parity/normalize.ts";
import { KINDS } from "./parity/resource-kinds.ts";
import { argumentsOf, bicepValue, leavesOf, terraformValue } from "./parity/values.ts";
import { META_ARGUMENTS } from "./terraform/check.ts";

/** Properties and arguments that other checks cover: names by evaluation, tags and regions by parity. */
const COVERED = new Set(["name", "tags", "location", "parent", "dependsOn", "scope", "resource_group_name"]);

/** Texts for people, and members of custom roles (role-actions.ts, evaluation/). */
const COVERED_TEXTS =
  /^(properties\.)?(displayName|display_name|description|notes|roleName|permissions|assignableScopes|assignable_scopes)\b/;

const isCovered = (leaf: string): boolean => COVERED.has(leaf.split(".")[0]!) || COVERED_TEXTS.test(leaf);

/** Returns whether a value is not set, or is an item of a `for_each`, whose list the table has at the path `for_each`. */
const isItem = (value: string | undefined): boolean => value === undefined || /^\[?\{value\.\}\]?$/.test(value);

/** Checks that each value that the templates decide is in the table, with its reason. */
export function checkListed(
  table: readonly Invariant[],
  bicep: readonly BicepResource[],
  terraform: ReadonlyMap<string, TerraformResource>,
): Finding[] {
  const invariantsOf = (type: string, name: string) =>
    table.filter((one) => one.type === type && (one.name === undefined || one.name === name));
  const isBelow = (leaf: string, path: string) => leaf === path || leaf.startsWith(`${path}.`);
  const ofBicep = bicep.flatMap((one) => {
    const name = snake(one.resource.name);
    const kinds = KINDS.filter(({ arm }) => arm === one.resource.type);
    const listedPaths = [
      ...invariantsOf(one.resource.type, name).flatMap(({ values = {} }) => Object.keys(values)),
      // Checked by `checkEventTypes` (invariants.ts).
      "properties.filter.includedEventTypes",
      ...kinds.flatMap(({ only }) =>
        Object.entries(only?.bicep ?? {}).flatMap(([path, reason]) =>
          /^always |settings\.ts/.test(reason) ? [path] : [],
        ),
      ),
    ];
    return leavesOf(one.resource.body)
      .filter((leaf) => !isCovered(leaf) && !listedPaths.some((path) => isBelow(leaf, path)))
      .filter((leaf) => !isItem(bicepValue(one, leaf)))
      .map((leaf) =>
        findingAt(one, `${one.resource.name}: ${leaf} is not in the table of values: ${bicepValue(one, leaf)}`),
      );
  });
  const ofTerraform = [...terraform].flatMap(([key, one]) => {
    const [type, name] = key.split(" ") as [string, string];
    const kinds = KINDS.filter(({ azurerm }) => azurerm === type);
    const ownPaths = invariantsOf(type, name).flatMap(({ terraform: values = {} }) => Object.keys(values));
    const listedPaths = ownPaths.concat(
      kinds.flatMap(({ arm, pairs, inside, only }) => {
        // A separate resource in Bicep can be a block of another resource in Terraform, so the names differ.
        const invariants = table.filter(
          (invariant) => invariant.type === arm && (invariant.name === undefined || invariant.name === name || inside),
        );
        const paths = [
          ...invariants.flatMap(({ values = {} }) => Object.keys(values)),
          ...Object.entries(only?.bicep ?? {}).flatMap(([path, reason]) =>
            reason.startsWith("always ") ? [path] : [],
          ),
        ];
        return [
          "included_event_types",
          // Compared by parity/settings.ts.
          "app_settings",
          // Parity compares the id, the pair names the role.
          ...(paths.includes("properties.roleDefinitionId") ? ["role_definition_id"] : []),
          ...pairs
            .filter(({ bicep: path, presence }) => !presence && paths.includes(path))
            .map((pair) => pair.terraform),
          ...invariants.flatMap(({ terraform: values = {} }) => Object.keys(values)),
        ];
      }),
    );
    const lists = one.block.blocks
      .filter(({ type: kind }) => kind === "dynamic")
      .map(({ labels }) => `${labels[0]}.for_each`);
    return [...argumentsOf(one.block), ...lists]
      .filter((leaf) => !isCovered(leaf) && !META_ARGUMENTS.has(leaf.split(".")[0]!))
      .filter((leaf) => !listedPaths.some((path) => isBelow(leaf, path)))
      .filter((leaf) => !isItem(terraformValue(one, { bicep: "", terraform: leaf })))
      .map((leaf) =>
        findingAt(
          one,
          `${name}: ${leaf} is not in the table of values: ${terraformValue(one, { bicep: "", terraform: leaf })}`,
        ),
      );
  });
  return [...ofBicep, ...ofTerraform];
}
