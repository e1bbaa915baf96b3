import type { DevopsSettingsView } from "./api.ts";
import { type DevopsSettings, etagOf } from "./settings.ts";

/** Converts the settings of the Azure DevOps integration to the form in API responses. */
export function settingsView(settings: DevopsSettings): DevopsSettingsView {
  const changed = settings.revision !== "none";
  return {
    orgUrl: settings.orgUrl ?? null,
    enabled: settings.orgUrl !== undefined,
    projectIds: settings.projectIds,
    copies: settings.copies,
    updatedAt: changed ? settings.updatedAt : null,
    updatedBy: changed ? settings.updatedBy : null,
    etag: etagOf(settings),
  };
}
