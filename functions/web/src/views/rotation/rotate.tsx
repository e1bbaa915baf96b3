import { Link } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { CheckField, NumberField } from "../../parts/fields.tsx";
import { given, typed } from "../../parts/form-dialog.tsx";
import { isolated } from "../../parts/isolated.ts";
import { Operate } from "../../parts/operate.tsx";
import { RotationPlan } from "../../parts/rotation-plan.tsx";

interface Props {
  application: Schemas["Application"];
  credential: Schemas["ApplicationCredential"];
}

/** Rotates one client secret of an application. The plan must be shown first. */
export function Rotate({ application: { appId, displayName }, credential: { keyId, displayName: name } }: Props) {
  const bodyOf = (form: FormData, dryRun: boolean) => ({
    body: {
      appId,
      secretId: keyId,
      ...given({ expiryDays: Number(typed(form, "expiryDays")) || null }),
      overlapDays: Number(typed(form, "overlapDays")),
      updateKeyVaults: form.has("updateKeyVaults"),
      removeExpired: form.has("removeExpired"),
      restartApps: form.has("restartApps"),
      skipVerification: form.has("skipVerification"),
      dryRun,
    },
  });
  return (
    <Operate
      operation="rotateSecret"
      title="Rotate secret"
      about={`${isolated(name ?? keyId)} of ${isolated(displayName)}`}
      action="Rotate secret"
      appearance="transparent"
      preview={{
        action: "Show plan",
        first: true,
        load: async (form, rotate) => <RotationPlan of={await rotate(bodyOf(form, true))} />,
      }}
      submit={async (form, rotate) => {
        const { rotationId } = await rotate(bodyOf(form, false));
        return <Link href={createHref(`/rotation/${rotationId}`, {})}>Rotation started. View its steps.</Link>;
      }}
    >
      <NumberField
        name="overlapDays"
        label="Overlap period (days)"
        hint="Both secrets are valid during this period"
        required
        min={0}
        max={90}
        defaultValue="7"
      />
      <NumberField
        name="expiryDays"
        label="Validity (days)"
        hint="Leave empty to use the default in Settings"
        min={1}
        max={730}
      />
      <CheckField name="updateKeyVaults" label="Write the new value to matching vault secrets" defaultChecked />
      <CheckField name="restartApps" label="Restart apps that read the secret only at startup" defaultChecked />
      <CheckField
        name="removeExpired"
        label="Delete an expired secret first if the application has no room for a new one"
      />
      <CheckField name="skipVerification" label="Skip verification that consumers use the new value" />
    </Operate>
  );
}
