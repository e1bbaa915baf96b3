import { NumberField } from "./fields.tsx";
import { counted } from "./plural.ts";
import { useAutomationSetting } from "./setting-value.ts";

/** The days until a new secret expires. The hint contains the default of the settings if the user can read it. */
export function ValidityField({
  label = "Validity of the new secret (days)",
  defaultValue = "",
}: {
  label?: string;
  defaultValue?: string;
}) {
  const days = useAutomationSetting("defaultValidityDays");
  return (
    <NumberField
      name="expiryDays"
      label={label}
      hint={`Leave empty to use the default validity in Settings${days === undefined ? "" : ` (${counted(days, "day")})`}.`}
      min={1}
      max={730}
      defaultValue={defaultValue}
    />
  );
}
