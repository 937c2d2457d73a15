target_compile_definitions(quire_server PRIVATE QUIRE_VERSION="${PROJECT_VERSION}")
