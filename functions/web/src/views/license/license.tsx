import { Badge, Link, MessageBar, MessageBarBody, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { Card } from "../../parts/card.tsx";
import { Copyable } from "../../parts/copyable.tsx";
import { Instant } from "../../parts/instant.tsx";
import { counted } from "../../parts/plural.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { View } from "../../parts/view.tsx";

type License = Schemas["LicenseStatus"];

/** The problem with the license, such as that none is installed. */
const REASONS: Record<NonNullable<License["reason"]>, string> = {
  missing: "No license is installed.",
  malformed:
    "LICENSE_KEY is not exactly one license, or its license is not valid yet. Copy the complete license text again, without line breaks in it.",
  unknownKey: "The license was signed with a key that this version does not support. Install a newer version.",
  badSignature: "The license was modified after it was signed. Copy the complete license text again.",
  wrongTenant: "The license was issued for another Entra tenant than the one in AZURE_TENANT_ID.",
  expired: "The license has expired.",
};

/** Features with their descriptions. `pro`: whether the feature needs a license. */
const FEATURES: Record<License["features"][number], { pro: boolean; description: string }> = {
  discovery: {
    pro: false,
    description: "Discovery: inventory of all secrets, keys and certificates in your key vaults",
  },
  compliance: { pro: false, description: "Compliance: checks, frameworks, score and exemptions" },
  alerts: { pro: false, description: "Alerts: notifications by email, chat, webhook and incident tools" },
  subscriptions: { pro: false, description: "Subscriptions: selection of the monitored subscriptions" },
  audit: { pro: false, description: "Audit log: tamper-evident record of all actions" },
  settings: { pro: false, description: "Settings: runtime configuration" },
  rotation: {
    pro: true,
    description:
      "Rotation, with the pages Rotation and Credentials: replaces secrets, checks that consumers use the new value, and can roll back",
  },
  sync: { pro: true, description: "Sync: copies of vault secrets in other secret stores" },
  dependencies: {
    pro: true,
    description:
      "Dependencies, with the pages Dependencies and Azure DevOps: consumers of each secret, and the effect of a rotation on them",
  },
  sso: { pro: true, description: "Single sign-on: OpenID Connect and SAML" },
  users: { pro: true, description: "Users: accounts with roles, in addition to the first administrator" },
  b2c: { pro: true, description: "B2C tenants: credentials of B2C and External ID tenants" },
};

/** The License page: tier, expiry date and features, and how to install a license. */
export default function LicenseView() {
  const license = api.useQuery("get", "/system/license/status");
  return (
    <View title="License">
      <QueryResult of={license}>
        {(status) => (
          <>
            <Card title={status.tier === "pro" ? "PRO license" : "Core edition, without a PRO license"}>
              <Status of={status} />
            </Card>
            <Card title={status.tier === "pro" ? "Included features" : "Features that need a PRO license"}>
              <ul>
                {Object.entries(FEATURES)
                  .filter(([name, { pro }]) =>
                    status.tier === "pro" ? status.features.includes(name as keyof typeof FEATURES) : pro,
                  )
                  .map(([name, { pro, description }]) => (
                    <li key={name}>
                      {description}
                      {status.tier === "pro" && pro && (
                        <>
                          {" "}
                          <Badge appearance="tint">PRO</Badge>
                        </>
                      )}
                    </li>
                  ))}
              </ul>
            </Card>
            <div id="install">
              <Card title="Install or replace the license">
                <Copyable label="Name of the app setting" text="LICENSE_KEY" />
                <Text>
                  In the Azure portal, set this app setting of the function app to the license text, preferably as a Key
                  Vault reference. The function app restarts after the change. The license is verified offline.
                </Text>
              </Card>
            </div>
          </>
        )}
      </QueryResult>
    </View>
  );
}

/** The page warns from this number of days before the license expires. */
const WARNING_DAYS = 30;

/**
 * The state of the license. An expired license stays valid for a grace period (`inGrace`). If the
 * license is not valid, the API returns an expiry date only if the license has expired.
 */
function Status({ of: { valid, reason, expiresAt, daysLeft, inGrace, graceEndsAt } }: { of: License }) {
  const expiry = expiresAt !== null && (
    <Text block>
      {valid && !inGrace ? "Expires" : "Expired"} <Instant at={expiresAt} />
      {daysLeft !== null && daysLeft >= 0 && `, in ${counted(daysLeft, "day")}`}.
    </Text>
  );
  const isNearEnd = inGrace || (valid && daysLeft !== null && daysLeft <= WARNING_DAYS);
  return (
    <>
      {reason !== null && <Text>{REASONS[reason]}</Text>}
      {isNearEnd ? (
        <MessageBar intent={inGrace ? "error" : "warning"} layout="multiline">
          <MessageBarBody>
            {expiry}
            {graceEndsAt !== null && (
              <Text block>
                Features marked PRO below stay available for a grace period, until <Instant at={graceEndsAt} />. They
                then stop, and data that is already stored is kept. The other features, such as alerts, continue.
              </Text>
            )}
            <Text block>
              Ask the vendor of this service for a new license.{" "}
              <Link onClick={() => document.getElementById("install")?.scrollIntoView()}>Show how to install it</Link>
            </Text>
          </MessageBarBody>
        </MessageBar>
      ) : (
        expiry
      )}
    </>
  );
}
