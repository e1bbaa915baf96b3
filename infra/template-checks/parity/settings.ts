// Compares the app settings of both languages.

import type { BicepFile } from "../bicep/parse.ts";
import { type Expression, property } from "../expression.ts";
import { argumentOf, type TerraformModule } from "../terraform/check.ts";
import { bicepResources, type Side, terraformResources } from "./declared-resources.ts";
import { partsOf } from "./normalize.ts";

/** An app setting with its value and the condition under which it is written. */
export interface Setting {
  name: string;
  /** Value, as `parity/normalize.ts` writes it. */
  value: string;
  condition: string;
  file: string;
  line: number;
}

export function bicepSettings(files: ReadonlyMap<string, BicepFile>): Setting[] {
  const found = [...bicepResources(files).values()].flat();
  return found
    .filter(({ resource }) => resource.type === "Microsoft.Web/sites/config")
    .flatMap((one) => settingsIn(property(one.resource.body, "properties"), one));
}

/**
 * The provider writes this connection string with an empty key, unless it is set to an empty string, which the host and the
 * service treat as not set: internal/services/appservice/function_app_flex_consumption_resource.go of azurerm 5.2.0.
 */
export const EMPTIED = "AzureWebJobsStorage";

/** Returns whether the module prevents the provider from writing a key. */
export function emptiesStorageKey(modules: readonly TerraformModule[]): boolean {
  return [...terraformResources(modules).values()].some((one) =>
    settingsIn(one.block.attributes.get("app_settings")?.value, one).some(
      ({ name, value }) => name === EMPTIED && value === "",
    ),
  );
}

export function terraformSettings(modules: readonly TerraformModule[]): Setting[] {
  return [...terraformResources(modules).values()].flatMap((one) => {
    const insights = argumentOf(one.block, "site_config.application_insights_connection_string");
    const written = settingsIn(one.block.attributes.get("app_settings")?.value, one);
    return [
      ...written.filter(({ name }) => name !== EMPTIED),
      ...(insights ? [settingOf("APPLICATIONINSIGHTS_CONNECTION_STRING", insights, "", one)] : []),
    ];
  });
}

function settingsIn(value: Expression | undefined, side: Side): Setting[] {
  if (!value) return [];
  return partsOf(value, side.normal).flatMap(({ part, condition }) =>
    part.kind === "object"
      ? part.entries.map((entry) => settingOf(entry.key ?? "?", entry.value, condition, side))
      : [],
  );
}

function settingOf(name: string, value: Expression, condition: string, { normal, file }: Side): Setting {
  return { name, value: normal(value), condition, file, line: value.line };
}
