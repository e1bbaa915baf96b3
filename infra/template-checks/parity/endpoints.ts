import type { BicepFile } from "../bicep/parse.ts";
import type { Expression, Finding } from "../expression.ts";
import { blocks, type TerraformModule } from "../terraform/check.ts";
import { bicepNormalizer, type Normalize, partsOf, terraformNormalizer } from "./normalize.ts";

/** Compares the services with a private endpoint and the DNS zones of their names. */
export function compareEndpoints(
  files: ReadonlyMap<string, BicepFile>,
  modules: readonly TerraformModule[],
): Finding[] {
  const left = [...files.values()].flatMap((file) =>
    file.variables
      .filter(({ name }) => name === "endpoints")
      .flatMap(({ value }) => {
        const normal = bicepNormalizer(files, file);
        return partsOf(value, normal).flatMap(({ part, condition }) =>
          part.kind === "array"
            ? part.items.map(
                (item) =>
                  `${field(item, "groupId", normal)} ${field(item, "resourceId", normal)} ${field(item, "zone", normal)} ${condition}`,
              )
            : [],
        );
      }),
  );
  const right = modules.flatMap((module) => {
    const normal = terraformNormalizer(module, modules);
    const value = blocks(module, "locals")
      .find(({ block }) => block.attributes.has("endpoints"))
      ?.block.attributes.get("endpoints")?.value;
    return (value ? partsOf(value, normal) : []).flatMap(({ part, condition }) =>
      part.kind === "object"
        ? part.entries.map(
            (entry) =>
              `${entry.key} ${field(entry.value, "resource_id", normal)} ${field(entry.value, "zone", normal)} ${condition}`,
          )
        : [],
    );
  });
  const file = "infra/azure/modules/private-endpoints.bicep";
  return [
    ...left
      .filter((one) => !right.includes(one))
      .map((one) => ({ file, line: 1, message: `Terraform has no private endpoint ${one}` })),
    ...right
      .filter((one) => !left.includes(one))
      .map((one) => ({ file, line: 1, message: `Bicep has no private endpoint ${one}` })),
  ];
}

const field = (expression: Expression, key: string, normal: Normalize): string => {
  const value = expression.kind === "object" ? expression.entries.find((entry) => entry.key === key)?.value : undefined;
  return value ? normal(value) : "";
};
