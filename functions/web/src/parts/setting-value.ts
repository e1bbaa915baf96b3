import { useMay } from "../api/access.ts";
import { api } from "../api/client.ts";

/** Returns the value of a setting of the category Automation. Undefined while loading, and if the user can't read settings. */
export function useAutomationSetting(key: "defaultValidityDays" | "rotationTriggerDays"): number | undefined {
  const isReadable = useMay()("getAllSettings");
  const settings = api.useQuery("get", "/api/settings/all", {}, { enabled: isReadable });
  const value = settings.data?.automation.find((setting) => setting.key === key)?.value;
  return typeof value === "number" ? value : undefined;
}
