import { DAY_SECONDS } from "../../platform/time.ts";
import { type Finder, usesIn } from "./finder.ts";

/** Healthy statuses. `Initialized`: App Service has not read the reference yet. */
const RESOLVED = new Set(["Resolved", "Initialized"]);

/**
 * Finds references of web apps, function apps and their slots: app settings and connection strings that refer to a key
 * vault. App Service refreshes the references of app settings on request, and all references once a day.
 * https://learn.microsoft.com/azure/app-service/app-service-key-vault-references
 *
 * subscription-reading.ts calls `find` for each app and slot that Resource Graph returns.
 */
export const appService: Finder = {
  types: ["microsoft.web/sites", "microsoft.web/sites/slots"],
  childTypes: ["microsoft.web/sites/config", "microsoft.web/sites/slots/config"],
  kind: ({ kind }) => (/\bfunctionapp\b/i.test(kind) ? "functionApp" : "webApp"),
  // Resource Graph does not return the needed properties, so none are queried.
  properties: "none",

  async find(row, { names, appService, signal }) {
    const { entries, unreadable } = await appService.references(row.id, signal);
    const locations = entries.map(({ list, name, reference, status, activeVersion }) => ({
      evidence: `${list}/${name}`,
      text: reference,
      refresh: { how: list === "appsettings" ? "action" : "automatic", slowestSeconds: DAY_SECONDS } as const,
      state: { resolved: RESOLVED.has(status), status, ...(activeVersion && { version: activeVersion }) },
    }));
    const { uses, failures } = usesIn(row, locations, names.ofReference);
    return { uses, failures: [...unreadable, ...failures] };
  },
};
