import { Text } from "@fluentui/react-components";
import type { Schemas } from "../api/client.ts";
import { titleOfId } from "./asset-name.ts";
import { CheckField, FormSection, NumberField } from "./fields.tsx";
import { fieldText, withoutEmpty } from "./form-dialog.tsx";
import { isolated } from "./isolated.ts";
import { bothInUse, credentialTitle, unfinished, unusedKey } from "./key-credential.ts";
import { Operate } from "./operate.tsx";
import { openRotation } from "./rotate-client-secret.tsx";
import { RotateKey } from "./rotate-key.tsx";
import { RotationPlan } from "./rotation-plan.tsx";
import { Unavailable, useWhyNot } from "./unavailable.tsx";
import { ValidityField } from "./validity-field.tsx";

interface Props {
  credential: Schemas["RotationCredentialDetail"];
  /** Called when the rotation has started. Without it, the page of the rotation opens. */
  started?(rotationId: string): void;
}

/** The button that rotates a key of an Azure resource, or a login of a database. */
export const RotateCredential = (props: Props) =>
  props.credential.issuer === "databaseLogin" ? <RotateLogin {...props} /> : <RotateKey {...props} />;

/**
 * The button that gives the other user of a database login a new password. The form can be submitted only after it has shown the
 * plan. If the user can't rotate the login, the button says why.
 */
function RotateLogin({ credential, started = openRotation }: Props) {
  const { credentialId, keyInUse, places, rotationId } = credential;
  const whyNot = useWhyNot()("rotateCredential");
  const otherUser = unusedKey(credential);
  const reason = whyNot ?? (rotationId === null ? undefined : unfinished(credential));
  if (reason !== undefined) return <Unavailable title="Rotate login" reason={reason} />;
  if (otherUser === undefined) return <Unavailable title="Rotate login" reason={bothInUse(credential) ?? ""} />;
  const bodyOf = (form: FormData, dryRun: boolean) => ({
    params: { path: { credential_id: credentialId } },
    body: {
      // An empty field is 0 as a number. It is omitted, so that the default of the settings applies.
      ...withoutEmpty({ expiryDays: Number(fieldText(form, "expiryDays")) || null }),
      overlapDays: Number(fieldText(form, "overlapDays")),
      restartApps: form.has("restartApps"),
      skipVerification: form.has("skipVerification"),
      dryRun,
    },
  });
  return (
    <Operate
      operation="rotateCredential"
      title="Rotate login"
      about={credentialTitle(credential)}
      action="Rotate login"
      appearance="primary"
      preview={{
        action: "Preview rotation",
        isRequired: true,
        load: async (form, rotate) => <RotationPlan of={await rotate(bodyOf(form, true))} />,
      }}
      submit={async (form, rotate) => {
        const { rotationId } = await rotate(bodyOf(form, false));
        if (rotationId !== null) started(rotationId);
      }}
    >
      <Text>
        Gives {otherUser} a new password on {isolated(credential.resourceName)}, and saves user and password in place of
        those of {keyInUse} to {places.map(({ assetId }) => titleOfId(assetId)).join(", ")}. The preview signs in to the
        server and lists all steps. The rotation starts only when you select Rotate login.
      </Text>
      <NumberField
        name="overlapDays"
        label="Overlap period (days)"
        hint="Number of days that both logins are valid, so that the rotation can be rolled back. The old user then gets a random password that is stored nowhere. Example: 7"
        required
        min={0}
        max={90}
        defaultValue="7"
      />
      <FormSection title="After the update">
        <ValidityField label="Validity of the new versions (days)" />
        <CheckField
          name="restartApps"
          label="Restart web apps and function apps that use the login"
          hint="Most apps read their settings only at startup."
          defaultChecked
        />
        <CheckField
          name="skipVerification"
          label="Don't check whether consumers use the new login"
          hint="The rotation then continues even if a consumer still uses the old login."
        />
      </FormSection>
    </Operate>
  );
}
