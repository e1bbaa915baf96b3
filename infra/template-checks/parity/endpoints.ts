import type { BicepFile } from "../bicep/parse.ts";
import type { Expression, Finding } from "../expression.ts";
import { blocks, type TerraformModule } from "../terraform/check.ts";
import { bicepNormalizer, type Normalize, partsOf, terraformNormalizer } from "./normalize.ts";

/**
 * Every private endpoint: group, resource, DNS zone and condition, in the common text.
 * https://learn.microsoft.com/azure/private-link/private-endpoint-dns
 */
const ENDPOINTS = [
  ...["blob", "table", "queue"].map(
    (group) => `${group} {storage_account.id} privatelink.${group}.{cloud.storage_domain} `,
  ),
  "vault {vault.id} {cloud.vault_zone} ",
  "configurationStores {app_configuration.id} {cloud.app_configuration_zone} {app_configuration_enabled}",
];

/**
 * Compares the private endpoints of Bicep and Terraform: resource, group (sub-resource), DNS zone and condition. Both languages
 * list them under the name `endpoints`: Bicep as an array of objects, Terraform as a map with the group as its key. `partsOf`
 * splits such a value into parts, each with the condition under which it is included. Each endpoint is compared as one text.
 */
export function compareEndpoints(
  files: ReadonlyMap<string, BicepFile>,
  modules: readonly TerraformModule[],
): Finding[] {
  const bicepEndpoints = [...files.values()].flatMap((file) =>
    file.variables
      .filter(({ name }) => name === "endpoints")
      .flatMap(({ value }) => {
        const normalize = bicepNormalizer(files, file);
        return partsOf(value, normalize).flatMap(({ part, condition }) =>
          part.kind === "array"
            ? part.items.map(
                (item) =>
                  `${field(item, "groupId", normalize)} ${field(item, "resourceId", normalize)} ${field(item, "zone", normalize)} ${condition}`,
              )
            : [],
        );
      }),
  );
  const terraformEndpoints = modules.flatMap((module) => {
    const normalize = terraformNormalizer(module, modules);
    const value = blocks(module, "locals")
      .find(({ block }) => block.attributes.has("endpoints"))
      ?.block.attributes.get("endpoints")?.value;
    return (value ? partsOf(value, normalize) : []).flatMap(({ part, condition }) =>
      part.kind === "object"
        ? part.entries.map(
            (entry) =>
              `${entry.key} ${field(entry.value, "resource_id", normalize)} ${field(entry.value, "zone", normalize)} ${condition}`,
          )
        : [],
    );
  });
  const file = "infra/azure/modules/private-endpoints.bicep";
  return [
    ...[...new Set([...bicepEndpoints, ...terraformEndpoints])]
      .filter((one) => !ENDPOINTS.includes(one))
      .map((one) => ({ file, line: 1, message: `must be one of "${ENDPOINTS.join('", "')}", but is "${one}"` })),
    ...ENDPOINTS.filter((one) => !bicepEndpoints.includes(one)).map((one) => ({
      file,
      line: 1,
      message: `there is no private endpoint ${one}`,
    })),
    ...bicepEndpoints
      .filter((one) => !terraformEndpoints.includes(one))
      .map((one) => ({ file, line: 1, message: `Terraform has no private endpoint ${one}` })),
    ...terraformEndpoints
      .filter((one) => !bicepEndpoints.includes(one))
      .map((one) => ({ file, line: 1, message: `Bicep has no private endpoint ${one}` })),
  ];
}

/** Returns a member of an object in the common text. Empty if it is missing. */
const field = (expression: Expression, key: string, normalize: Normalize): string => {
  const value = expression.kind === "object" ? expression.entries.find((entry) => entry.key === key)?.value : undefined;
  return value ? normalize(value) : "";
};
