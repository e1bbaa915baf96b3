import { jsonObject, type ServiceResponse } from "../http.ts";
import type { SettingsKind } from "./app-service.ts";
import { parseReference, referenceIdentity } from "./key-vault-references.ts";
import type { Route } from "./request-context.ts";
import { type ResourceCall, resourceRoute } from "./resource-route.ts";
import type { ArmResource } from "./resource-store.ts";

/** `config/configreferences/appsettings`, optionally with the name of one setting. */
const REFERENCES = /^config\/configreferences\/(appsettings|connectionstrings)(?:\/[^/]+)?$/;
/** `config/appsettings`, or `config/appsettings/list` to read the settings. */
const CONFIGURATION = /^config\/(appsettings|connectionstrings)(\/list)?$/;

/**
 * Returns the route of a request to an App Service site or slot. Undefined for requests that are not simulated:
 * https://learn.microsoft.com/rest/api/appservice/web-apps
 */
export function webRoute(call: ResourceCall): Route | undefined {
  const { request, rest, type, options } = call;
  const { method } = request;
  const { versions } = type;
  const appService = options.consumers.appService;
  const config = `${type.type}/config`;

  if (method === "POST" && rest === "restart") {
    const action = `${type.type}/restart/action`;
    return resourceRoute(call, { name: "arm.restartSite", versions, action }, (site) => {
      appService.restart(site);
      return { status: 200 };
    });
  }
  if (method === "GET" && rest === "config/slotconfignames") {
    return resourceRoute(call, { name: "arm.getSlotConfigNames", versions, action: `${config}/read` }, slotConfigNames);
  }
  if (method === "POST" && /^config\/configreferences\/(appsettings|connectionstrings)\/refresh$/.test(rest)) {
    const kind = rest.split("/")[2] as SettingsKind;
    // Azure does not publish an action for this operation. A caller who may write the configuration may call it.
    return resourceRoute(call, { name: "arm.refreshReferences", versions, action: `${config}/write` }, (site) => {
      appService.refresh(site);
      return { status: 200, body: { value: references(call, site, kind) } };
    });
  }
  const [, referenceKind] = REFERENCES.exec(rest) ?? [];
  if (method === "GET" && referenceKind !== undefined) {
    const kind = referenceKind as SettingsKind;
    // The name after `config/configreferences/KIND/` in the client's spelling, which `rest` lacks: it is in lower case.
    const name = call.parts[3];
    const route = { name: "arm.listReferences", versions, action: `${config}/read` };
    if (name === undefined) return resourceRoute(call, route, (site) => listReferences(call, site, kind));
    return resourceRoute(call, { ...route, name: "arm.getReference", item: name }, (site) => {
      const reference = references(call, site, kind).find((one) => one.name.toLowerCase() === name.toLowerCase());
      return reference === undefined
        ? noReference(`Cannot find the reference '${name}'.`)
        : { status: 200, body: reference };
    });
  }
  const [, settingsKind, list] = CONFIGURATION.exec(rest) ?? [];
  if (settingsKind === undefined) return undefined;
  const kind = settingsKind as SettingsKind;
  const noun = kind === "appsettings" ? "Settings" : "ConnectionStrings";
  if (method === "POST" && list !== undefined) {
    return resourceRoute(call, { name: `arm.list${noun}`, versions, action: `${config}/list/action` }, (site) => {
      const answer = { status: 200, body: configuration(site, kind) };
      if (kind === "appsettings") appService.applyChangeAfterList(site);
      return answer;
    });
  }
  if (method === "PUT" && list === undefined) {
    return resourceRoute(call, { name: `arm.put${noun}`, versions, action: `${config}/write` }, (site) =>
      put(call, site, kind),
    );
  }
  return undefined;
}

/**
 * Lists the references of an app. For an app without references, Azure was observed to respond in three ways. Each simulated
 * app always responds in the same way, which depends on its name.
 */
function listReferences(call: ResourceCall, site: ArmResource, kind: SettingsKind): ServiceResponse {
  const value = references(call, site, kind);
  if (value.length > 0) return { status: 200, body: { value, nextLink: null } };
  switch ([...site.name].reduce((sum, letter) => sum + letter.charCodeAt(0), 0) % 3) {
    case 0:
      return { status: 200, body: { value: [], nextLink: null } };
    case 1:
      return noReference("Cannot find any Key Vault references.");
    default:
      return appServiceFailure(400, "BadRequest", "The app has no Key Vault references.");
  }
}

/** Returns the references of an app in the form of the REST API. */
function references({ options }: ResourceCall, site: ArmResource, kind: SettingsKind): { name: string }[] {
  return options.consumers.appService.references(site, kind).map(({ name, text, fetched }) => {
    const location = parseReference(text);
    return {
      id: `${site.id}/config/configreferences/${kind}/${name}`,
      name,
      type: `${site.type.type}/config/configreferences`,
      location: site.location,
      properties: {
        reference: text,
        status: fetched.status,
        vaultName: location?.vault ?? null,
        secretName: location?.secret ?? null,
        secretVersion: location?.version ?? "",
        identityType: referenceIdentity(site) === undefined ? "SystemAssigned" : "UserAssigned",
        details: DETAILS[fetched.status] ?? null,
        source: "KeyVault",
        ...(fetched.version !== undefined && { activeVersion: fetched.version }),
      },
    };
  });
}

/** `details` of a reference by its status. */
const DETAILS: Record<string, string> = {
  Resolved: "Reference has been successfully resolved.",
  InvalidSyntax: "Unable to parse the reference.",
  MSINotEnabled: "Reference was not able to be resolved because the site has no managed identity.",
  VaultNotFound: "Key Vault reference was not able to be resolved because the vault was not found.",
  SecretNotFound: "Key Vault reference was not able to be resolved because the secret was not found.",
  SecretVersionNotFound: "Key Vault reference was not able to be resolved because the secret version was not found.",
  AccessToKeyVaultDenied:
    "Key Vault reference was not able to be resolved because site was denied access to Key Vault.",
  UnauthorizedClient: "Reference was not able to be resolved because the identity is not assigned to the site.",
  FetchTimedOut: "Key Vault reference was not able to be resolved because the request timed out.",
  OtherReasons: "Key Vault reference was not able to be resolved.",
};

function configuration(site: ArmResource, kind: SettingsKind): object {
  return {
    id: `${site.id}/config/${kind}`,
    name: kind,
    type: `${site.type.type}/config`,
    location: site.location,
    properties: kind === "appsettings" ? { ...site.settings } : { ...site.connectionStrings },
  };
}

/** Replaces all settings with the settings in the body. */
function put({ request, options }: ResourceCall, site: ArmResource, kind: SettingsKind): ServiceResponse {
  const properties = jsonObject(request)?.properties;
  if (typeof properties !== "object" || properties === null || Array.isArray(properties)) {
    return appServiceFailure(400, "BadRequest", "The parameter properties has an invalid value.");
  }
  const entries = Object.entries(properties as Record<string, unknown>);
  const isValid =
    kind === "appsettings"
      ? entries.every(([, value]) => typeof value === "string")
      : entries.every(([, value]) => isConnectionString(value));
  if (!isValid) return appServiceFailure(400, "BadRequest", "The parameter properties has an invalid value.");
  options.consumers.appService.replace(
    site,
    kind === "appsettings"
      ? { settings: properties as ArmResource["settings"] }
      : { connectionStrings: properties as ArmResource["connectionStrings"] },
  );
  const answer = { status: 200, body: configuration(site, kind) };
  if (kind === "appsettings") options.consumers.appService.applyChangeAfterPut(site);
  return answer;
}

function isConnectionString(value: unknown): boolean {
  const { value: text, type } = (value ?? {}) as { value?: unknown; type?: unknown };
  return typeof text === "string" && typeof type === "string";
}

function slotConfigNames(site: ArmResource): ServiceResponse {
  const [strings, settings] = [new Set(Object.keys(site.connectionStrings)), site.slotSettings];
  return {
    status: 200,
    body: {
      id: `${site.id}/config/slotConfigNames`,
      name: "slotConfigNames",
      type: "Microsoft.Web/sites/config",
      location: site.location,
      properties: {
        connectionStringNames: settings.filter((one) => strings.has(one)),
        appSettingNames: settings.filter((one) => !strings.has(one)),
        azureStorageConfigNames: null,
      },
    },
  };
}

const noReference = (message: string): ServiceResponse => appServiceFailure(404, "NotFound", message);

/** App Service formats its errors differently from Azure Resource Manager. */
function appServiceFailure(status: number, code: string, message: string): ServiceResponse {
  return {
    status,
    body: { Code: code, Message: message, Target: null, Details: [{ Message: message }], Innererror: null },
  };
}
