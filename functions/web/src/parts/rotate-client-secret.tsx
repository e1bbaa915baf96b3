import { Text } from "@fluentui/react-components";
import type { Schemas } from "../api/client.ts";
import { createHref } from "./address.ts";
import { CheckField, NumberField } from "./fields.tsx";
import { fieldText, withoutEmpty } from "./form-dialog.tsx";
import { isolated } from "./isolated.ts";
import { Operate } from "./operate.tsx";
import { RotationPlan } from "./rotation-plan.tsx";
import { HANDOVER, SAVE_TO_MATCHES } from "./rotation-texts.ts";
import { ValidityField } from "./validity-field.tsx";

interface Props {
  application: Schemas["Application"];
  credential: Schemas["ApplicationCredential"];
  /** `primary` on the page of the secret, where it is the main action. */
  appearance?: "primary";
  title?: "Rotate secret" | "Rotate without a match";
  /** Whether no key vault secret is proven to store the secret. The new secret is then stored for handover by default. */
  isWithoutMatch?: boolean;
  /** Called when the rotation has started. Without it, the page of the rotation opens. */
  started?(rotationId: string): void;
}

/**
 * Opens the page of a rotation. A link in the dialog would not be enough: the button can disappear once the secret is being
 * replaced, and its dialog with it. The browser reports the new address only after the form has handled the response. `navigate`
 * would remove the form before that, and a dialog about a closed form would cover the page.
 */
export function openRotation(rotationId: string): void {
  location.hash = createHref(`/rotation/${rotationId}`);
}

/**
 * The button that rotates one client secret of an application, beside that secret and on its page. The form can be submitted
 * only after it has shown the plan, which is the response to the same request as a dry run.
 */
export function RotateClientSecret({
  application: { appId, displayName, reasons },
  credential: { keyId, displayName: secretName },
  appearance,
  title = "Rotate secret",
  isWithoutMatch = false,
  started,
}: Props) {
  const bodyOf = (form: FormData, dryRun: boolean) => ({
    body: {
      appId,
      secretId: keyId,
      // An empty field is 0 as a number. It is omitted, so that the default of the settings applies.
      ...withoutEmpty({ expiryDays: Number(fieldText(form, "expiryDays")) || null }),
      overlapDays: Number(fieldText(form, "overlapDays")),
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
      title={title}
      about={`"${isolated(secretName ?? keyId)}" of ${isolated(displayName)}`}
      action={title}
      {...(appearance && { appearance })}
      preview={{
        action: "Preview rotation",
        isRequired: true,
        load: async (form, rotate) => <RotationPlan of={await rotate(bodyOf(form, true))} />,
      }}
      submit={async (form, rotate) => {
        const { rotationId } = await rotate(bodyOf(form, false));
        if (rotationId !== null) (started ?? openRotation)(rotationId);
      }}
    >
      <Text>
        Creates a new client secret in Entra, saves it, and deletes the old client secret after the overlap period if
        all known consumers use the new one. The preview lists all steps. The rotation starts only when you select{" "}
        {title}.
      </Text>
      <NumberField
        name="overlapDays"
        label="Overlap period (days)"
        hint="Number of days that the old and the new secret are both valid. Example: 7"
        required
        min={0}
        max={90}
        defaultValue="7"
      />
      <ValidityField />
      <CheckField
        name="updateKeyVaults"
        label={SAVE_TO_MATCHES}
        hint={`Updates the confirmed matching key vault secrets. If off: ${HANDOVER}`}
        defaultChecked={!isWithoutMatch}
      />
      <CheckField
        name="restartApps"
        label="Restart web apps and function apps that use the secret"
        hint="Most apps read their settings only at startup."
        defaultChecked
      />
      <CheckField
        name="removeExpired"
        label="Delete an expired secret first if the application can't have another secret"
        hint="Applications for personal Microsoft accounts can have two secrets."
        defaultChecked={reasons.some(({ code }) => code === "expiredSecretInTheWay")}
      />
      <CheckField
        name="skipVerification"
        label="Don't check whether consumers use the new value"
        hint="The rotation then continues even if a consumer still uses the old value."
      />
    </Operate>
  );
}
