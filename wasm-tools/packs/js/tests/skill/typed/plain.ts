exports.name = "plain" as string;
