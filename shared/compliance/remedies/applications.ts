import { credentialIds } from "../../inventory/asset.ts";
import { b2cTenantOf } from "../../inventory/holder.ts";
import { az, dayIn, inText, later, lines, type Remediation, shellWord, type Target } from "./remediation.ts";

/** Remediations for the credentials of applications, in the service's own tenant and in B2C tenants. */

const PROPOSED_DAYS = 180;
const NOTE =
  "No template changes a credential: Bicep's application resources hold no values, and none knows an application that it did not make.";

type Kind = "secret" | "certificate";
const remedy = (portal: string, cli: string): Remediation => ({ portal, cli, bicep: null, bicepNote: NOTE });

const idsOf = ({ name }: Target) => credentialIds(name) ?? { appId: "<client id>", keyId: "<key id>" };
const SIGN_IN = (tenant: string) => `${az("login", { tenant, "allow-no-subscriptions": "" })} && `;

/** Returns the command that signs in to a B2C tenant. Empty for the service's own tenant. */
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
const list = (kind: Kind, target: Target): string =>
  command(target, "list", kind === "certificate" ? { cert: "" } : {});

const addStep = (kind: Kind, target: Target): string =>
  `${place(target)} > ${kind === "secret" ? "New client secret" : "Certificates > Upload certificate"}`;

/** Sign-ins of service principals: https://learn.microsoft.com/entra/identity/monitoring-health/concept-service-principal-sign-ins */
const SIGN_INS = "Sign-in logs > Service principal sign-ins > Credential key ID";

/** Returns a commented command that deletes the credential. Deleted credentials can't be restored in Entra. */
const deleteLater = (kind: Kind, target: Target, condition: string): string =>
  later(
    `${condition}. This cannot be undone`,
    command(target, "delete", { "key-id": idsOf(target).keyId, ...(kind === "certificate" && { cert: "" }) }),
  );

/**
 * For a credential that expires soon or is valid for too long: create a new one, and delete the old one once every consumer
 * uses the new one.
 */
export const renew =
  (kind: Kind) =>
  (target: Target): Remediation => {
    const by =
      kind === "secret" && signIn(target) === ""
        ? "Rotate it with POST /api/automation/rotation/rotate, or by hand: "
        : "";
    return remedy(
      `${by}${addStep(kind, target)}. Switch every consumer to it and check that each one signs in with it (${SIGN_INS}). Only then delete ${inText(idsOf(target).keyId)}.`,
      lines(
        add(kind, target),
        deleteLater(kind, target, "After every consumer signs in with the new one, delete the old one"),
      ),
    );
  };

/**
 * For an expired credential. Entra accepts no sign-in with it, so a newer one may be in use already: list the credentials
 * first. An expired certificate may still sign tokens of a service principal.
 */
export const retire =
  (kind: Kind) =>
  (target: Target): Remediation =>
    remedy(
      `See whether the application has a newer one: ${place(target)}. If it has none and still needs one: ${addStep(kind, target)}, and switch every consumer to it. Only then delete ${inText(idsOf(target).keyId)}.`,
      lines(
        "# All credentials of the application. A valid one may have replaced the expired one already:",
        list(kind, target),
        later("If the application has no valid one and still needs one, create it", add(kind, target)),
        deleteLater(kind, target, "After every consumer signs in with a valid one, delete the expired one"),
      ),
    );

/** For a secret that the application does not need, because it has a better credential. */
export const remove =
  (instead: string) =>
  (target: Target): Remediation => {
    const { keyId } = idsOf(target);
    return remedy(
      `${instead} Check that nothing signs in with ${inText(keyId)} any more (${SIGN_INS}). Only then delete it: ${place(target)}.`,
      lines(
        `# ${instead} All secrets of the application:`,
        list("secret", target),
        deleteLater("secret", target, "After no sign-in names the key id of this secret any more, delete it"),
      ),
    );
  };

export const nameOwner = (target: Target): Remediation =>
  remedy(
    `${directory(target)}App registrations > the application ${inText(idsOf(target).appId)} > Owners > Add owners.`,
    signIn(target) + az("ad app owner add", { id: idsOf(target).appId, "owner-object-id": "<object id>" }),
  );

const GRAPH = "https://graph.microsoft.com/beta/trustFramework/keySets";

/** For a key of a B2C tenant's custom policies. Its name is that of the key set with 16 digits. */
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

/** For any credential of a B2C tenant, by its holder's kind. */
export const ofB2c =
  (kind: Kind | "key", application: (target: Target) => Remediation) =>
  (target: Target): Remediation => {
    const holder = target.vault.toLowerCase();
    if (kind === "key" || holder.includes("-policykey")) return newPolicyKey(target);
    if (!holder.endsWith("-identityprovider")) return application(target);
    return remedy(
      `Create a new client secret at the identity provider and keep the old one valid. ${directory(target)}Azure AD B2C > Identity providers > ${inText(target.name)}: enter the new one. After people sign in with it, delete the old one at the provider.`,
      lines(
        "# Create a new client secret at the identity provider first, and keep the old one valid:",
        `${signIn(target)}az rest --method PATCH --url ${shellWord(`${PROVIDERS}/${encodeURIComponent(target.name)}`)} --body '@<file with @odata.type and clientSecret>'`,
        "# After people sign in with the new one, delete the old one at the identity provider.",
      ),
    );
  };
