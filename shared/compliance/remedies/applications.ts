import { credentialIds } from "../../inventory/asset.ts";
import { b2cTenantOf } from "../../inventory/holder.ts";
import { az, dayIn, inText, type Remediation, shellWord, type Target } from "./remediation.ts";

/** Remedies for the credentials of applications, of the service's own tenant and of B2C tenants. */

const PROPOSED_DAYS = 180;
const NOTE =
  "No template changes a credential: Bicep's application resources hold no values, and none knows an application that it did not make.";

type Kind = "secret" | "certificate";
const remedy = (portal: string, cli: string): Remediation => ({ portal, cli, bicep: null, bicepNote: NOTE });

const idsOf = ({ name }: Target) => credentialIds(name) ?? { appId: "<client id>", keyId: "<key id>" };
const SIGN_IN = (tenant: string) => `${az("login", { tenant, "allow-no-subscriptions": "" })} && `;

/** In the service's own tenant nobody signs in anew. */
function signIn({ vault }: Target): string {
  const tenant = b2cTenantOf(vault.toLowerCase());
  return tenant === undefined ? "" : SIGN_IN(tenant);
}
const directory = (target: Target): string => (signIn(target) === "" ? "" : "In the tenant's own directory: ");

const place = (target: Target): string =>
  target.facts.servicePrincipal
    ? `${directory(target)}Enterprise applications > the application ${inText(idsOf(target).appId)}`
    : `${directory(target)}App registrations > the application ${inText(idsOf(target).appId)} > Certificates & secrets`;

const command = (target: Target, verb: string, options: Readonly<Record<string, string>>): string =>
  signIn(target) +
  az(`ad ${target.facts.servicePrincipal ? "sp" : "app"} credential ${verb}`, { id: idsOf(target).appId, ...options });

const add = (kind: Kind, target: Target): string => {
  const until = dayIn(target.now, PROPOSED_DAYS).slice(0, 10);
  return kind === "secret"
    ? command(target, "reset", { append: "", "display-name": `until ${until}`, "end-date": until })
    : command(target, "reset", { append: "", cert: "@<certificate.pem>" });
};
const take = (kind: Kind, target: Target): string =>
  command(target, "delete", { "key-id": idsOf(target).keyId, ...(kind === "certificate" && { cert: "" }) });

/** For one that ends soon or lives too long: a new one beside it, and the old one goes when all use that. */
export const renew =
  (kind: Kind) =>
  (target: Target): Remediation => {
    const by =
      kind === "secret" && signIn(target) === ""
        ? "Rotate it with POST /api/automation/rotation/rotate, or by hand: "
        : "";
    const step = kind === "secret" ? "New client secret" : "Certificates > Upload certificate";
    return remedy(
      `${by}${place(target)} > ${step}; bring it to all who use it, then delete ${inText(idsOf(target).keyId)}.`,
      `${add(kind, target)}\n# When all use the new one: ${take(kind, target)}`,
    );
  };

/** For one that has expired. */
export const retire =
  (kind: Kind) =>
  (target: Target): Remediation =>
    remedy(
      `If anything still uses it, add a new one: ${place(target)}. Then delete ${inText(idsOf(target).keyId)}.`,
      `${take(kind, target)}\n# If anything still uses it, first: ${add(kind, target)}`,
    );

/** For a secret that the application does not need, since something better is there. */
export const remove =
  (instead: string) =>
  (target: Target): Remediation =>
    remedy(`${instead} Then ${place(target)}: delete ${inText(idsOf(target).keyId)}.`, take("secret", target));

export const nameOwner = (target: Target): Remediation =>
  remedy(
    `${directory(target)}App registrations > the application ${inText(idsOf(target).appId)} > Owners > Add owners.`,
    signIn(target) + az("ad app owner add", { id: idsOf(target).appId, "owner-object-id": "<object id>" }),
  );

const GRAPH = "https://graph.microsoft.com/beta/trustFramework/keySets";

/** A key of a B2C tenant's custom policies; its name is the key set's, and 16 digits. */
export const newPolicyKey = (target: Target): Remediation => {
  const keySet = target.name.replace(/-[0-9a-f]{16}$/i, "");
  return remedy(
    `${directory(target)}Azure AD B2C > Identity Experience Framework > Policy keys > ${inText(keySet)} > Generate or upload a key; it is used from its activation on.`,
    signIn(target) +
      az("rest", {
        method: "POST",
        url: `${GRAPH}/${encodeURIComponent(keySet)}/generateKey`,
        body: '{"use":"<sig or enc>","kty":"RSA"}',
      }),
  );
};

const PROVIDERS = "https://graph.microsoft.com/v1.0/identity/identityProviders";

/** Any credential of a B2C tenant, told apart by its holder's kind. */
export const ofB2c =
  (kind: Kind | "key", application: (target: Target) => Remediation) =>
  (target: Target): Remediation => {
    const holder = target.vault.toLowerCase();
    if (kind === "key" || holder.includes("-policykey")) return newPolicyKey(target);
    if (!holder.endsWith("-identityprovider")) return application(target);
    return remedy(
      `${directory(target)}Azure AD B2C > Identity providers > ${inText(target.name)}: enter the new client secret that its provider gave.`,
      `${signIn(target)}az rest --method PATCH --url ${shellWord(`${PROVIDERS}/${encodeURIComponent(target.name)}`)} --body '@<file with @odata.type and clientSecret>'`,
    );
  };
