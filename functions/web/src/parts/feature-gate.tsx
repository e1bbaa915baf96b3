import { MessageBar, MessageBarBody, MessageBarTitle } from "@fluentui/react-components";
import type { ReactNode } from "react";
import { type Operation, usePerson, useRoleMay, whoMay } from "../api/access.ts";

interface Props {
  /** The operation that the content calls. */
  operation: Operation;
  /** A sentence that describes the feature. */
  description: string;
  /** Whether to show nothing, rather than a notice, to roles that can't call the operation. */
  isQuiet?: boolean;
  children: ReactNode;
}

/** Renders its children if the user can call the operation. Otherwise describes the feature and the role or license it needs. */
export function FeatureGate({ operation, description, isQuiet = false, children }: Props) {
  const { role, tier } = usePerson();
  const roleMay = useRoleMay();
  const { roles, tier: needed } = whoMay(operation);
  const isLicensed = needed === "core" || tier === "pro";
  if (isLicensed && roleMay(operation)) return children;
  if (isLicensed && isQuiet) return null;
  return (
    <MessageBar intent="info" layout="multiline">
      <MessageBarBody>
        <MessageBarTitle>{isLicensed ? "Your role has no access" : "PRO feature"}</MessageBarTitle>
        {description}{" "}
        {isLicensed
          ? `Your role is ${role}. Required: ${roles.join(" or ")}. Ask an administrator for access.`
          : "This feature needs a PRO license. Set it in LICENSE_KEY."}
      </MessageBarBody>
    </MessageBar>
  );
}
