// Reads the app settings that the Bicep files and the Terraform modules set on the function app.

import type { BicepFile } from "../bicep/parse.ts";
import { type Expression, property } from "../expression.ts";
import { argumentOf, type TerraformModule } from "../terraform/check.ts";
import { bicepResources, type Side, terraformResources } from "./declared-resources.ts";
import { partsOf } from "./normalize.ts";

/** An app setting with its value and the condition under which the templates set it. */
export interface Setting {
  name: string;
  /** Value in the common text of both languages (normalize.ts). */
  value: string;
  /** Empty if the setting is always set. */
  condition: string;
  file: string;
  line: number;
}

/** Returns the app settings of the Bicep files. */
export function bicepSettings(files: ReadonlyMap<string, BicepFile>): Setting[] {
  const resources = [...bicepResources(files).values()].flat();
  return resources
    .filter(({ resource }) => resource.type === "Microsoft.Web/sites/config")
    .flatMap((one) => settingsIn(property(one.resource.body, "properties"), one));
}

/**
 * App setting that must be "" in Terraform. Otherwise the provider sets AzureWebJobsStorage to a connection string with an empty
 * key. It compares names without regard to case (MergeUserAppSettings), but drops the setting from its state in its own spelling
 * only, which would be a change in each plan. Azure and the functions host ignore case, and treat "" as not set. Source:
 * internal/services/appservice/function_app_flex_consumption_resource.go of azurerm 5.2.0.
 */
export const STORAGE_KEY_SETTING = "AZUREWEBJOBSSTORAGE";

/** Returns whether the Terraform modules set STORAGE_KEY_SETTING to "". */
export function preventsStorageKey(modules: readonly TerraformModule[]): boolean {
  return [...terraformResources(modules).values()].some((one) =>
    settingsIn(one.block.attributes.get("app_settings")?.value, one).some(
      ({ name, value }) => name === STORAGE_KEY_SETTING && value === "",
    ),
  );
}

/** Returns the app settings of Terraform, without STORAGE_KEY_SETTING. */
export function terraformSettings(modules: readonly TerraformModule[]): Setting[] {
  return [...terraformResources(modules).values()].flatMap((one) => {
    const insights = argumentOf(one.block, "site_config.application_insights_connection_string");
    const appSettings = settingsIn(one.block.attributes.get("app_settings")?.value, one);
    return [
      ...appSettings.filter(({ name }) => name !== STORAGE_KEY_SETTING),
      ...(insights ? [settingOf("APPLICATIONINSIGHTS_CONNECTION_STRING", insights, "", one)] : []),
    ];
  });
}

/** Returns the settings in an object. `partsOf` splits a merged object into parts, each with its condition. */
function settingsIn(value: Expression | undefined, side: Side): Setting[] {
  if (!value) return [];
  return partsOf(value, side.normalize).flatMap(({ part, condition }) =>
    part.kind === "object"
      ? part.entries.map((entry) => settingOf(entry.key ?? "?", entry.value, condition, side))
      : [],
  );
}

function settingOf(name: string, value: Expression, condition: string, { normalize, file }: Side): Setting {
  return { name, value: normalize(value), condition, file, line: value.line };
}
