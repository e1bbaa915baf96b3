import { useMay } from "../api/access.ts";
import { api, type Schemas } from "../api/client.ts";

type Settings = Schemas["AllSettings"];

/**
 * Returns all settings. Undefined while loading, and if the user can't read settings. Settings change rarely, so views share the
 * response for five minutes.
 */
function useSettings(): Settings | undefined {
  const isReadable = useMay()("getAllSettings");
  return api.useQuery("get", "/api/settings/all", {}, { enabled: isReadable, staleTime: 300_000 }).data;
}

/** Returns the value of a setting that is a number. */
function numberIn(settings: Settings["automation"] | undefined, key: string): number | undefined {
  const value = settings?.find((setting) => setting.key === key)?.value;
  return typeof value === "number" ? value : undefined;
}

/** Returns the value of a setting of the category Automation. Undefined while loading, and if the user can't read settings. */
export const useAutomationSetting = (key: "defaultValidityDays" | "rotationTriggerDays"): number | undefined =>
  numberIn(useSettings()?.automation, key);

/** Numbers of days before expiry from which an asset has the status critical ("urgent" on the page) or warning. */
export type ExpiryThresholds = Record<"critical" | "warning", number>;

/** Returns the thresholds of the statuses. Undefined while loading, and if the user can't read settings. */
export function useExpiryThresholds(): ExpiryThresholds | undefined {
  const policy = useSettings()?.compliancePolicy;
  const critical = numberIn(policy, "criticalExpiryDays");
  const warning = numberIn(policy, "warningExpiryDays");
  return critical === undefined || warning === undefined ? undefined : { critical, warning };
}
