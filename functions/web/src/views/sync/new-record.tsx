import { Text } from "@fluentui/react-components";
import { useState } from "react";
import type { Schemas } from "../../api/client.ts";
import { ChoiceField, TextField } from "../../parts/fields.tsx";
import { fieldChoice, fieldText, withoutEmpty } from "../../parts/form-dialog.tsx";
import { Operate } from "../../parts/operate.tsx";
import { RecordFields, recordOf } from "./record-fields.tsx";
import { PROVIDER_NAMES, SERVICES, serviceNames } from "./targets.ts";

type Provider = Schemas["NewSyncRecord"]["targetProvider"];
const PROVIDERS = Object.keys(SERVICES) as Provider[];

/** The button on the Sync page that creates a sync record: a copy of a vault secret in another store, kept up to date. */
export const NewRecord = () => (
  <div>
    <Operate
      operation="createSyncRecord"
      title="Create sync"
      action="Create sync"
      submit={(form, create) => {
        const targetProvider = fieldChoice(form, "targetProvider", PROVIDERS);
        return create({
          body: {
            sourceVault: fieldText(form, "sourceVault"),
            sourceSecret: fieldText(form, "sourceSecret"),
            targetProvider,
            targetService: fieldChoice(form, "targetService", SERVICES[targetProvider]),
            targetName: fieldText(form, "targetName"),
            ...withoutEmpty({ targetRegion: fieldText(form, "targetRegion") }),
            ...recordOf(form),
          },
        });
      }}
    >
      <SourceAndTargetFields />
      <RecordFields />
    </Operate>
  </div>
);

/** Example of a target name for each provider, in the form that the provider requires. */
const NAME_EXAMPLES: Record<Provider, string> = {
  azure: "sql-password",
  aws: "billing/sql-password",
  hashicorp: "billing/sql-password",
  google: "billing-sql-password",
  github: "acme/shop/SQL_PASSWORD",
  kubernetes: "sql-password/value",
};

/** The fields for source and target of the copy. */
function SourceAndTargetFields() {
  const [provider, setProvider] = useState<Provider>("azure");
  return (
    <>
      <Text>
        Copies a key vault secret to another secret store, and updates the copy when the secret gets a new version.
      </Text>
      <TextField
        name="sourceVault"
        label="Source key vault name"
        hint="A key vault of the inventory. Example: kv-billing-prod"
        required
      />
      <TextField name="sourceSecret" label="Source secret name" hint="Example: sql-password" required />
      <ChoiceField
        name="targetProvider"
        label="Target provider"
        options={PROVIDER_NAMES}
        value={provider}
        choose={setProvider}
      />
      {/* The key discards the selected service, which another provider does not have. */}
      <ChoiceField key={provider} name="targetService" label="Service" options={serviceNames(provider)} />
      <TextField
        name="targetName"
        label="Target secret name"
        hint={`Name of the copy. Example: ${NAME_EXAMPLES[provider]}`}
        required
      />
      {provider === "aws" && (
        <TextField
          name="targetRegion"
          label="Region"
          hint="Example: eu-west-1. Leave empty to use the region in the provider's configuration."
        />
      )}
      {provider === "azure" && (
        <TextField
          name="targetRegion"
          label="Target key vault name"
          hint="A key vault of the inventory. Example: kv-billing-copy"
          required
        />
      )}
    </>
  );
}
