/** Remediations for the credentials of Entra applications, in the service's own tenant and in B2C tenants. */
import { credentialIds } from "../../inventory/asset.ts";
import { b2cTenantOf } from "../../inventory/holder.ts";
import { az, shellWord } from "../../platform/azure/cli.ts";
import { commentedCommand, joinLines, nameInText, type Remediation, startOfDayIn, type Target } from "./remediation.ts";

/** Suggested validity of a new client secret in days. Users can choose another one. */
const PROPOSED_VALIDITY_DAYS = 180;
const NOTE =
  "No template can change a credential. Bicep resources for applications contain no secret values, and manage only applications that they created.";

type Kind = "secret" | "certificate";
const remedy = (portal: string, cli: string): Remediation => ({ portal, cli, bicep: null, bicepNote: NOTE });

const idsOf = ({ name }: Target) => credentialIds(name) ?? { appId: "<client id>", keyId: "<key id>" };
const signInCommand = (tenant: string) => `${az("login", { tenant, "allow-no-subscriptions": "" })} && `;

/** Returns the command that signs in to a B2C tenant. Empty for the service's own tenant. */
function signIn({ vault }: Target): string {
  const tenant = b2cTenantOf(vault.toLowerCase());
  return tenant === undefined ? "" : signInCommand(tenant);
}
const directoryPrefix = (target: Target): string => (signIn(target) === "" ? "" : "In the tenant's own directory: ");

const portalPath = (target: Target): string =>
  target.facts.servicePrincipal
    ? `${directoryPrefix(target)}Enterprise applications > the application ${nameInText(idsOf(target).appId)}`
    : `${directoryPrefix(target)}App registrations > the application ${nameInText(idsOf(target).appId)} > Certificates & secrets`;

const credentialCommand = (target: Target, verb: string, options: Readonly<Record<string, string>>): string =>
  signIn(target) +
  az(`ad ${target.facts.servicePrincipal ? "sp" : "app"} credential ${verb}`, { id: idsOf(target).appId, ...options });

const addCommand = (kind: Kind, target: Target): string => {
  const until = startOfDayIn(target.now, PROPOSED_VALIDITY_DAYS).slice(0, 10);
  return kind === "secret"
    ? credentialCommand(target, "reset", { append: "", "display-name": `until ${until}`, "end-date": until })
    : credentialCommand(target, "reset", { append: "", cert: "@<certificate.pem>" });
};
const listCommand = (kind: Kind, target: Target): string =>
  credentialCommand(target, "list", kind === "certificate" ? { cert: "" } : {});

const addStep = (kind: Kind, target: Target): string =>
  `${portalPath(target)} > ${kind === "secret" ? "New client secret" : "Certificates > Upload certificate"}`;

/**
 * Sign-ins of service principals:
 * https://learn.microsoft.com/entra/identity/monitoring-health/concept-service-principal-sign-ins
 */
const SIGN_INS = "Sign-in logs > Service principal sign-ins > Credential key ID";

/** Returns a commented command that deletes the credential. Deleted credentials can't be restored in Entra. */
const deleteLater = (kind: Kind, target: Target, condition: string): string =>
  commentedCommand(
    `${condition}. This cannot be undone`,
    credentialCommand(target, "delete", { "key-id": idsOf(target).keyId, ...(kind === "certificate" && { cert: "" }) }),
  );

/**
 * Remediation of a credential that expires soon or is valid for too long: create a new one, and delete the old one once every
 * consumer uses the new one.
 */
export const renewCredential =
  (kind: Kind) =>
  (target: Target): Remediation => {
    const rotationHint =
      kind === "secret" && signIn(target) === ""
        ? "Rotate it with POST /api/automation/rotation/rotate, or by hand: "
        : "";
    return remedy(
      `${rotationHint}${addStep(kind, target)}. Switch every consumer to it and check that each one signs in with it (${SIGN_INS}). Only then delete ${nameInText(idsOf(target).keyId)}.`,
      joinLines(
        addCommand(kind, target),
        deleteLater(kind, target, "After every consumer signs in with the new one, delete the old one"),
      ),
    );
  };

/**
 * Remediation of an expired credential. Entra accepts no sign-in with it, so a newer one may be in use already: list the
 * credentials first. An expired certificate may still sign tokens of a service principal.
 */
export const retireCredential =
  (kind: Kind) =>
  (target: Target): Remediation =>
    remedy(
      `See whether the application has a newer one: ${portalPath(target)}. If it has none and still needs one: ${addStep(kind, target)}, and switch every consumer to it. Only then delete ${nameInText(idsOf(target).keyId)}.`,
      joinLines(
        "# All credentials of the application. A valid one may have replaced the expired one already:",
        listCommand(kind, target),
        commentedCommand(
          "If the application has no valid one and still needs one, create it",
          addCommand(kind, target),
        ),
        deleteLater(kind, target, "After every consumer signs in with a valid one, delete the expired one"),
      ),
    );

/** Remediation of a secret that the application does not need, because it has a better credential. */
export const removeUnneeded =
  (precondition: string) =>
  (target: Target): Remediation => {
    const { keyId } = idsOf(target);
    return remedy(
      `${precondition} Check that nothing signs in with ${nameInText(keyId)} any more (${SIGN_INS}). Only then delete it: ${portalPath(target)}.`,
      joinLines(
        `# ${precondition} All secrets of the application:`,
        listCommand("secret", target),
        deleteLater("secret", target, "After no sign-in names the key id of this secret any more, delete it"),
      ),
    );
  };

export const addOwner = (target: Target): Remediation =>
  remedy(
    `${directoryPrefix(target)}App registrations > the application ${nameInText(idsOf(target).appId)} > Owners > Add owners.`,
    signIn(target) + az("ad app owner add", { id: idsOf(target).appId, "owner-object-id": "<object id>" }),
  );

const GRAPH = "https://graph.microsoft.com/beta/trustFramework/keySets";

/** Remediation of a key of a B2C tenant's custom policies. Its name is `<key set>-<16 hexadecimal digits>`. */
export const createPolicyKey = (target: Target): Remediation => {
  const keySet = target.name.replace(/-[0-9a-f]{16}$/i, "");
  return remedy(
    `${directoryPrefix(target)}Azure AD B2C > Identity Experience Framework > Policy keys > ${nameInText(keySet)} > Generate or upload a key; it is used from its activation on.`,
    signIn(target) +
      az("rest", {
        method: "POST",
        url: `${GRAPH}/${encodeURIComponent(keySet)}/generateKey`,
        body: '{"use":"<sig or enc>","kty":"RSA"}',
      }),
  );
};

const PROVIDERS = "https://graph.microsoft.com/v1.0/identity/identityProviders";

/**
 * Remediation of any credential of a B2C tenant. Its holder is the entry that takes the place of a vault in the inventory. The
 * holder's name says whether the credential belongs to an application, a policy or an identity provider.
 */
export const b2cRemedy =
  (kind: Kind | "key", application: (target: Target) => Remediation) =>
  (target: Target): Remediation => {
    const holder = target.vault.toLowerCase();
    if (kind === "key" || holder.includes("-policykey")) return createPolicyKey(target);
    if (!holder.endsWith("-identityprovider")) return application(target);
    return remedy(
      `Create a new client secret at the identity provider and keep the old one valid. ${directoryPrefix(target)}Azure AD B2C > Identity providers > ${nameInText(target.name)}: enter the new one. After people sign in with it, delete the old one at the provider.`,
      joinLines(
        "# Create a new client secret at the identity provider first, and keep the old one valid:",
        `${signIn(target)}az rest --method PATCH --url ${shellWord(`${PROVIDERS}/${encodeURIComponent(target.name)}`)} --body '@<file with @odata.type and clientSecret>'`,
        "# After people sign in with the new one, delete the old one at the identity provider.",
      ),
    );
  };
