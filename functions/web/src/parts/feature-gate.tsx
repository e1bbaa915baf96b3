import { Link, MessageBar, MessageBarBody, MessageBarTitle } from "@fluentui/react-components";
import type { ReactNode } from "react";
import { type Operation, requirementsOf, useCurrentUser, useRoleAllows } from "../api/access.ts";
import { createHref } from "./address.ts";

interface Props {
  /** The operation that the content calls. */
  operation: Operation;
  /** A sentence that describes the feature. */
  description: string;
  /** Whether to show nothing, rather than a notice, to roles that can't call the operation. */
  isQuiet?: boolean;
  children: ReactNode;
}

/**
 * Renders its children if the user can call the operation. Otherwise describes the feature and the required role or license,
 * unless `isQuiet` is set and only the role is missing.
 */
export function FeatureGate({ operation, description, isQuiet = false, children }: Props) {
  const { role, tier } = useCurrentUser();
  const roleAllows = useRoleAllows();
  const { roles, tier: requiredTier } = requirementsOf(operation);
  const isLicensed = requiredTier === "core" || tier === "pro";
  if (isLicensed && roleAllows(operation)) return children;
  if (isLicensed && isQuiet) return null;
  return (
    <MessageBar intent="info" layout="multiline">
      <MessageBarBody>
        <MessageBarTitle>{isLicensed ? "Your role has no access" : "PRO feature"}</MessageBarTitle>
        {description}{" "}
        {isLicensed ? (
          `Your role is ${role}. Required: ${roles.join(" or ")}. Ask an administrator for access.`
        ) : (
          <>
            This feature needs a PRO license. <Link href={createHref("/license")}>How to install one</Link>
          </>
        )}
      </MessageBarBody>
    </MessageBar>
  );
}
